"""Tests the costs of one transaction in each mode and placement, counted by the engine and from the log itself.

The golden is tests/golden/costs/costs.txt: PLANSTEP_GOLDEN=write makes it anew; then read it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from face_kit import open_store, until

import planstep
from planstep.coordinator.kafka.states import PREPARE_COMMIT
from planstep.errors import IoError
from planstep.proto.batched_log import decode_entry
from planstep.proto.ids import GROUPS, PARTITION, TRANSACTIONS, kind_of
from planstep.runtime.ledger import Costs
from planstep.store.files import Files
from planstep.store.layers import GONE
from planstep.store.log.records import read_record
from planstep.store.log.segments import segment_files, segment_parts
from planstep.store.meta import load_meta
from planstep.store.recovery import read_segment
from planstep.store.turn import decode_changes

GOLDEN = Path(__file__).parents[1] / "golden" / "costs" / "costs.txt"
SETUPS = [
    ("deterministic", "shared", None),
    ("deterministic", "separate", None),
    ("kafka", "shared", 1),
    ("kafka", "separate", 1),
    ("kafka", "shared", 2),
    ("kafka", "separate", 2),
]


def turns(folder: Path) -> Iterator[tuple[int, dict[bytes, Any]]]:
    """Yields (turn, changes) of a host's log."""
    files = Files()
    meta = load_meta(folder, files)
    assert meta is not None
    for path in segment_files(folder):
        generation, _ = segment_parts(path.name)
        data = read_segment(files, path)
        record = read_record(data, 0, meta.store_id, generation, None)
        while record is not None:
            yield record.turn, decode_changes(record.changes or b"\x90")
            after = record.offset + record.size
            record = read_record(data, after, meta.store_id, generation, record.crc)


def appends(folder: Path) -> Iterator[tuple[int, str, int]]:
    """Yields (turn, what, tablet) of each append in the log: batches, markers, coordinators' records."""
    for turn, changes in turns(folder):
        for key, value in changes.items():
            tablet, letter = int.from_bytes(key[:4], "big"), key[4:5]
            kind = kind_of(tablet)
            if value is GONE:
                continue
            if kind == PARTITION and letter == b"b":
                yield turn, "batch" if value[6] < 2 else "marker", tablet
            elif kind == TRANSACTIONS and letter == b"l":
                for record in decode_entry(value):
                    state = record[3] if len(record) > 2 else -1
                    yield turn, "prepare" if state == PREPARE_COMMIT else "coordinator", tablet
            elif kind == GROUPS and letter == b"l":
                yield turn, "group", tablet


def one_transaction(db: planstep.Engine, outputs: int) -> str:
    """Reads one record, writes one to each output, commits; all messages go with the commit."""
    db._runtime.hooks.may_send = lambda *_: False
    with db.transaction(worker="w") as tx:
        assert len(tx.read("in", "c", max_records=1)) == 1
        tx.write_batch("out", [b"x"] * outputs, partition=list(range(outputs)))
    return tx.id


def costs_once(db: planstep.Engine, tx: str, expected: float) -> Costs:
    until(lambda: db.costs(tx).appends == expected)
    return db.costs(tx)


def prepared(db: planstep.Engine) -> None:
    """Makes topics, records to consume, and a first transaction, which initializes the producer."""
    db.create_topic("in", partitions=1)
    db.create_topic("out", partitions=3)
    db.topic("in").write_batch([b"a", b"b"])
    first = one_transaction(db, 1)
    if db.mode == "kafka":
        costs_once(db, first, 8.0)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("placement", ["shared", "separate"])
def test_appends_counted_from_the_log(tmp_path: Path, outputs: int, placement: str) -> None:
    with planstep.open(tmp_path / "s", mode="kafka", placement=placement) as db:
        prepared(db)
        before = len(list(appends(tmp_path / "s" / "host-0")))
        counted = db.stats()["costs"]["entries"]
        costs = costs_once(db, one_transaction(db, outputs), 2 * outputs + 6)
        entries = list(appends(tmp_path / "s" / "host-0"))[before:]
        counted = db.stats()["costs"]["entries"] - counted
    kinds = [what for _, what, _ in entries]
    assert counted == len({(turn, tablet) for turn, _, tablet in entries})
    assert len(entries) == 2 * outputs + 6 == costs.appends
    (decided,) = [turn for turn, what, _ in entries if what == "prepare"]
    assert sum(turn <= decided for turn, *_ in entries) == outputs + 4, "before the reply"
    assert kinds.count("batch") == outputs == kinds.count("marker")
    assert kinds.count("group") == 2, "the positions, and their marker"
    assert kinds.count("coordinator") == 3, "partitions, offsets, complete"


@pytest.mark.parametrize("placement", ["shared", "separate"])
def test_turns_that_fail_cost_nothing(placement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with planstep.open(":memory:", mode="kafka", placement=placement) as db:
        prepared(db)
        store = db._runtime.nodes[0].host.store
        commit, calls = store.commit, 0

        def some_fail(*args: Any) -> None:
            nonlocal calls
            calls += 1
            if calls in (1, 3, 4, 6):
                raise IoError("made to fail")
            commit(*args)

        monkeypatch.setattr(store, "commit", some_fail)
        with db.transaction(worker="w") as tx:
            tx.write("out", b"x", partition=0)
        costs_once(db, tx.id, 5.0)
        with db.transaction(worker="w") as following:  # after the former one's end
            following.write("out", b"x", partition=0)
        assert db.costs(tx.id).appends == 5.0 and calls > 6


@pytest.mark.parametrize("hosts", [1, 3])
@pytest.mark.parametrize("placement", ["shared", "separate"])
@pytest.mark.parametrize("version", [1, 2])
def test_markers_are_one_request_to_each_host(hosts: int, placement: str, version: int) -> None:
    """WriteTxnMarkers: one request, and one answer, for any number of partitions of a host."""
    requests = 4 if version == 2 else 2  # includes the hosts' questions before the first batches
    counts = []
    for partitions in (3, 9):
        with open_store(
            hosts=hosts, placement=placement, protocol_version=version, marker_retry_ms=60_000
        ) as db:
            db.create_topic("out", partitions=partitions)
            db._runtime.hooks.may_send = lambda *_: False
            for _ in range(2):  # the second one finds the producer initialized
                with db.transaction(worker="w") as tx:
                    tx.write_batch("out", [b"x"] * partitions, partition=list(range(partitions)))
                until(lambda db=db: db.transactional_ids()[0].state == "CompleteCommit")
            until(lambda db=db, tx=tx: db.costs(tx.id).messages >= requests * hosts)
            counts.append(db.costs(tx.id).messages)
    assert counts == [requests * hosts] * 2


def test_golden() -> None:
    lines = [
        "One transaction: one range consumed, k partitions written, alone. See runtime/ledger.py.",
        "",
        "mode           placement  version  k  requests  messages  appends  hops  visible  syncs",
    ]
    for mode, placement, version in SETUPS:
        for outputs in (1, 3):
            settings = {"mode": mode, "placement": placement, "protocol_version": version}
            with planstep.open(":memory:", **settings) as db:
                prepared(db)
                tx = one_transaction(db, outputs)
                expected = 2 * outputs + 6
                costs = costs_once(db, tx, expected) if mode == "kafka" else db.costs(tx)
            lines.append(
                f"{mode:14} {placement:9} {version or '-':>8}  {outputs}"
                f"  {costs.requests:8g}  {costs.messages:8g}  {costs.appends:7g}  {costs.hops:4}"
                f"  {costs.hops_visible:7}  {costs.syncs:5g}"
            )
    text = "\n".join(lines) + "\n"
    if os.environ.get("PLANSTEP_GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
