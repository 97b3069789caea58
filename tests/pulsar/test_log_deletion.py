"""Tests the deletion of records from a log, which entries of batches survive until their last record goes."""

from typing import Any

import pytest
from coordinator_kit import FakeShell, Keys
from hypothesis import given
from hypothesis import strategies as st

from planstep.proto.batched_log import BatchedLog, LogSettings, Position, entries_of
from planstep.proto.pulsar.settings import PulsarSettings


class Log:
    """A log that keeps what was not deleted, and `live`: its records by position, as they should be."""

    def __init__(
        self, batching: bool = True, prefix: bytes = b"", keys: Keys | None = None
    ) -> None:
        self.keys = keys or Keys()
        self.shell: Any = FakeShell(PulsarSettings())  # type: ignore[arg-type]
        self.log = BatchedLog(
            self.keys, self.shell, LogSettings(batching, 4, 1_000, 1.0), prefix, None
        )
        self.prefix = prefix
        self.live: dict[Position, Any] = {}

    def append(self, *record: Any) -> None:
        def done(error: str, at: Position | None) -> None:
            assert not error and at is not None
            self.live[at] = record

        self.log.append(record, done)

    def delete(self, at: Position) -> None:
        self.log.delete(at)
        self.live.pop(at, None)

    def stored(self) -> dict[Position, Any]:
        entries = entries_of(self.keys, self.prefix)
        return {
            at: r for e in entries for at, r in zip(e.positions(), e.records.values(), strict=True)
        }


def test_a_plain_entry_goes_with_its_record() -> None:
    log = Log(batching=False)
    log.append("a")
    log.append("b")
    log.delete(Position(0, 1, 0))
    assert log.stored() == {Position(1, 1, 0): ("b",)}
    assert sorted(log.keys.rows) == [b"L", b"l" + bytes(7) + b"\x01"]


def test_a_batch_goes_with_the_last_of_its_records() -> None:
    log = Log()
    for name in "abc":
        log.append(name)
    log.log.flush()
    log.delete(Position(0, 3, 1))
    assert [*log.stored().values()] == [("a",), ("c",)]
    assert log.keys.rows[b"v" + bytes(8)] == b"\x05"
    log.delete(Position(0, 3, 1))  # again
    log.delete(Position(0, 3, 0))
    log.delete(Position(0, 3, 2))
    assert sorted(log.keys.rows) == [b"L"]
    log.delete(Position(0, 3, 2))  # what is gone stays so
    assert sorted(log.keys.rows) == [b"L"]


def test_records_of_a_batch_are_deleted_after_batching_was_switched_off() -> None:
    log = Log()
    log.append("a")
    log.append("b")
    log.log.switch(False)
    log.append("c")
    for at in [*log.live]:
        log.delete(at)
    assert sorted(log.keys.rows) == [b"L"]


def test_nothing_is_dropped_for_its_age() -> None:
    log = Log(batching=False)
    for n in range(3_000):
        log.append(n)
    assert len(log.stored()) == 3_000
    log.log.delete_before(2_990)
    assert [*log.stored().values()] == [(n,) for n in range(2_990, 3_000)]


def test_logs_of_one_tablet_do_not_mix() -> None:
    keys = Keys()
    logs = [Log(batching, prefix, keys) for batching, prefix in ((True, b"la"), (False, b"lb"))]
    for n, log in enumerate(logs * 3):
        log.append(n)
    for log in logs:
        log.log.flush()
    assert [*logs[0].stored().values()] == [(0,), (2,), (4,)]
    assert [*logs[1].stored().values()] == [(1,), (3,), (5,)]
    assert logs[0].live == logs[0].stored() and logs[1].live == logs[1].stored()


ACTIONS = st.one_of(
    st.just(("append", 0)),
    st.integers(0, 40).map(lambda n: ("delete", n)),
    st.booleans().map(lambda on: ("switch", on)),
    st.just(("flush", 0)),
    st.integers(0, 12).map(lambda n: ("delete before", n)),
)


@given(st.lists(ACTIONS, max_size=80), st.booleans())
@pytest.mark.parametrize("prefix", [b"", b"lname\x00"])
def test_what_is_stored_is_what_was_not_deleted(
    prefix: bytes, actions: list[tuple[str, Any]], on: bool
) -> None:
    log = Log(on, prefix)
    for n, (action, detail) in enumerate(actions):
        if action == "append":
            log.append(n)
        elif action == "switch":
            log.log.switch(detail)
        elif action == "flush":
            log.log.flush()
        elif action == "delete before":
            log.log.delete_before(detail)
            log.live = {at: r for at, r in log.live.items() if at.entry >= detail}
        elif log.live:
            log.delete([*log.live][detail % len(log.live)])
        assert log.stored() == log.live
    marks = {key for key in log.keys.rows if key.startswith(prefix + b"v")}
    assert marks <= {prefix + b"v" + at.entry.to_bytes(8, "big") for at in log.live}
