"""The whole face for asyncio, in an attached process and at the owner of another store: the same answers."""

import re
from pathlib import Path

import pytest
from process_kit import Other

import planstep
from planstep.aio.engine import AsyncEngine

STEPS = """
db.mode, db.closed, db.turn
await db.create_topic("t", partitions=2)
await db.create_topic("log", format="json")
await db.create_table("n", shards=2)
await db.topic("t").create_consumer("c")
await db.topic("t").create_consumer("i", kind="individual")
await db.write("t", b"a", partition=0)
await db.topic("t").write(b"b", key="k", headers={"h": b"1"}, partition=1)
await db.topic("t").write_batch([b"c", b"d"], keys=["x", "y"])
await db.topic("t").write(b"x" * (9 << 20), partition=0)
await db.table("n").put("k", 1)
await db.table("n").add("k", 2)
await db.table("n").load([(1, 2), (3, 4)])
await db.table("n").scan()
await db.run(write_one)
await flushed()
await together()
await waited()
await read_all("c")
await read_all("i")
await processed()
await viewed()
await logged()
await db.topic("t").lag("c")
await db.topic("t").describe()
await db.topic("t").seek("c", "earliest")
await db.topic("t").trim(1, partition=0)
await db.topic("t").drop_consumer("i")
await db.topic("t").alter(retention_bytes=1 << 30)
type(await db.backup(db.path + ".copy")).__name__
list(db.topics()), list(db.tables())
await db.open_transactions()
await db.slow_transactions(0)
[one.state for one in await db.transactions(5)]
{one.state for one in await db.transactional_ids()}
[one.open for one in await db.coordinator_stats()]
[one.state for one in await db.buffer_stats("t")]
await db.pending_acks("t", "c")
await db.position_state("t", "c", 1, 0)
[one.report.batching for one in await db.log_batches()]
await db.switch_log_batching(True)
await db.abort_left_open()
await db.abort_transaction("(0,9999)")
await db.resolve("9-9")
await db.recorded(last)
(await db.outcome(last)).state
(await db.costs(last)).syncs > 0, (await db.costs()).syncs > 0, (await db.phases(last)).visible is not None
sorted(set(await db.stats()) - {"link", "owner", "processes"})
await db.drop_table("n")
await db.drop_topic("t")
"""

PROGRAM = """
import asyncio

loop = asyncio.new_event_loop()
last = None

async def opened(path, **options):
    return await planstep.open_async(path, **options)

async def value_of(code):
    exec(f"async def ask():\\n    return {code}", globals())
    return await asyncio.wait_for(ask(), 300)

def show(code):
    try:
        return repr(loop.run_until_complete(value_of(code)))
    except Exception as error:
        return f"{type(error).__name__}: {error}"

async def write_one(tx):
    await tx.write("t", b"one", partition=0)

async def flushed():
    tx = db.transaction()
    await tx.write("t", b"f", partition=0)
    await tx.flush()
    pending = [record.value for record in await tx.pending("t")]
    return pending, (await tx.commit()).published, (await tx.outcome()).state

async def one():
    global last
    async with db.transaction() as tx:
        await write_one(tx)
    last = tx.id

async def together():
    await asyncio.gather(*(one() for _ in range(200)))

async def waited():
    ends = (await db.topic("t").read()).ends
    reading = asyncio.ensure_future(db.topic("t").read(ends, timeout=300))
    await asyncio.sleep(0)
    await one()
    return len(await reading)

async def read_all(consumer):
    records = 0
    async with db.reader("t", consumer, until_idle=True) as reader:
        async for tx, batch in reader:
            records += len(batch)
            await tx.commit()
    return records

async def processed():
    async def work(tx, batch):
        await tx.write("log", len(batch))
    await db.topic("t").seek("c", "earliest")
    return (await db.process(work, "t", "c", workers=2, until_idle=True)).records

async def viewed():
    async with db.snapshot() as view:
        return await view.bounds("t"), await view.scan("n"), await view.position("t", "c")

async def logged():
    await db.create_topic("changes", format="json")
    async with db.transaction() as tx:
        (await db.changelog("changes")).put(tx, "k", 5)
    return dict((await db.changelog("changes")).items())
"""
_OWN = re.compile(r"/ours\b|/theirs\b|when_ms=\d+")
"""What differs between two stores."""


@pytest.mark.parametrize("mode", ["deterministic", "kafka", "pulsar"])
def test_each_method_answers_alike(tmp_path: Path, mode: str) -> None:
    with planstep.open(tmp_path / "theirs", mode=mode), Other(tmp_path / "theirs") as other:
        scope = {"planstep": planstep}
        exec(PROGRAM, scope)
        other.run(PROGRAM)
        exec(
            f"db = loop.run_until_complete(opened({str(tmp_path / 'ours')!r}, mode={mode!r}))",
            scope,
        )
        other.run(f"sync, db = db, loop.run_until_complete(opened({str(tmp_path / 'theirs')!r}))")
        assert other("db.owner != os.getpid()")
        differ = [
            f"{line}\n  owner    {ours}\n  attached {theirs}"
            for line in STEPS.strip().splitlines()
            for ours, theirs in [(scope["show"](line), other(f"show({line!r})"))]
            if _OWN.sub("…", ours) != _OWN.sub("…", theirs)
        ]
        exec("loop.run_until_complete(db.close()); loop.close()", scope)
        other.run("loop.run_until_complete(db.close())\ndb = sync")
        assert not differ, "\n".join(differ)


def test_no_public_method_is_left_out() -> None:
    asked = set(re.findall(r"db\.(\w+)", STEPS + PROGRAM)) | {"bridge", "sync", "close", "owner"}
    public = {name for name in dir(AsyncEngine) if name[0] != "_"}
    assert public <= asked, sorted(public - asked)
