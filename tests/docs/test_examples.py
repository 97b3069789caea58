"""Tests that the three example programs keep their promises: killed midway, asked twice, a hundred requests at
once."""

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from kit import module_of

import planstep

FOLDER = Path(__file__).parents[2] / "docs" / "examples"


# enrich ------------------------------------------------------------------------------------


def run_and_kill(command: list[str], phase: str, nth: int) -> None:
    """Runs a program and kills it when it prints `phase` for the n-th time."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            nth -= line.strip() == phase
            if not nth:
                child.send_signal(signal.SIGKILL)
                break
    assert child.wait() == -signal.SIGKILL


def test_enrichment_is_exact_however_often_it_is_killed(tmp_path: Path) -> None:
    orders = 1500
    store = tmp_path / "shop.planstep"
    command = [sys.executable, str(FOLDER / "enrich.py"), str(store), str(orders)]
    for phase, nth in [("filling", 3), ("enriching", 2), ("enriching", 7)]:
        run_and_kill(command, phase, nth)
    with planstep.open(store) as db:  # the kill really was in the middle
        before = db.topic("orders").consumer("enricher")
        assert 0 < before.lag < orders
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.endswith("all done\n")

    expected = Counter[tuple[str, str]]()
    for n in range(orders):
        expected[("de", "fr", "it")[n % 50 % 3], f"c{n % 50}"] += n % 97
    with planstep.open(store) as db:
        records = db.topic("enriched").read(max_records=10 * orders)
        assert sorted(value["order"] for value in records.values) == list(range(orders))
        assert all(r.value["country"] in ("de", "fr", "it") for r in records)
        assert dict(db.table("spent").scan()) == {key: n for key, n in expected.items()}
        assert db.topic("orders").lag("enricher") == 0


# outbox ------------------------------------------------------------------------------------


class Lossy:
    """Delivers, and then fails as if the answer were lost, once for each of some events."""

    def __init__(self, inner: Any, failing: set[int]) -> None:
        self.inner, self.failing = inner, failing
        self.calls = 0

    def deliver(self, event_id: str, event: dict[str, Any]) -> None:
        self.inner.deliver(event_id, event)
        self.calls += 1
        if self.calls in self.failing:
            raise ConnectionError("no answer")


def test_the_outbox_and_the_sink_agree(tmp_path: Path) -> None:
    outbox = module_of(FOLDER / "outbox.py")
    mailbox = outbox.Mailbox(str(tmp_path / "mailbox.sqlite"))
    sink = Lossy(mailbox, {3, 14, 15})
    with planstep.open(tmp_path / "s") as db:
        outbox.setup(db)
        placed = [outbox.place_order(db, f"o{n}", f"u{n % 5}", n) for n in range(25)]
        assert all(placed)
        assert not outbox.place_order(db, "o7", "u2", 7)
        failures = 0
        while True:
            try:
                outbox.relay(db, sink)
                break
            except ConnectionError:
                failures += 1
        assert failures == 3 and sink.calls > 25
        assert db.topic("outbox").lag("relay") == 0
        orders = {key for key, _ in db.table("orders").scan()}
    rows = mailbox.database.execute("SELECT event FROM events").fetchall()
    mailbox.database.close()
    numbers = [json.loads(event)["order"] for (event,) in rows]
    assert sorted(numbers) == sorted(orders) and len(numbers) == 25


# web ---------------------------------------------------------------------------------------


async def ask(port: int, method: str, path: str, body: Any = None, key: str = "") -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
    head += f"Idempotency-Key: {key}\r\n" if key else ""
    writer.write(head.encode() + b"\r\n" + data)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head_raw, _, rest = answer.partition(b"\r\n\r\n")
    return int(head_raw.split()[1]), json.loads(rest)


def test_a_hundred_requests_at_once(tmp_path: Path) -> None:
    web = module_of(FOLDER / "web.py")
    store = str(tmp_path / "s")

    async def main() -> None:
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        server = asyncio.create_task(web.serve(store, 0, ready.set_result))
        port = await ready
        # Each order is requested twice at the same time: fifty orders, a hundred requests.
        answers = await asyncio.gather(
            *(
                ask(port, "POST", "/orders", {"user": f"u{n % 5}", "cents": n}, f"key-{n}")
                for n in [*range(50), *range(50)]
            )
        )
        assert all(status == 200 for status, _ in answers)
        assert answers[:50] == answers[50:]
        assert await ask(port, "GET", "/users/u0") == (200, {"user": "u0", "cents": 225})
        assert (await ask(port, "POST", "/orders", ["?"]))[0] == 400
        assert (await ask(port, "GET", "/"))[0] == 404
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)

    asyncio.run(main())
    with planstep.open(store) as db:
        events = db.topic("orders").read(max_records=1000)
        assert len(events) == 50
        assert dict(db.table("spent").scan()) == {f"u{u}": sum(range(u, 50, 5)) for u in range(5)}
