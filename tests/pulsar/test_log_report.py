"""Tests the report that says whether an earlier program could read a log, and the writer's own scenarios."""

from typing import Any

import pytest
from coordinator_kit import FakeShell, Keys
from transactions_kit import Coordinator, P

from planstep.errors import FormatError
from planstep.proto.batched_log import TRIGGERS, BatchedLog, LogSettings, decode_entry
from planstep.proto.log_report import LogReport, report
from planstep.proto.pulsar.messages import SwitchLog
from planstep.proto.pulsar.settings import PulsarSettings


def state(c: Coordinator) -> LogReport:
    return report(c.keys, c.tablet.log.batching)


def test_an_empty_log() -> None:
    found = report(Keys(), False)
    assert found == LogReport(False, 0, 0, 0, None, None)
    assert found.text == "batching is off, no entries: no batched entries are left"


def test_scenario_5_the_report_names_the_last_batched_entry_until_it_is_gone() -> None:
    c = Coordinator()
    c.open(P[0])  # entries 0 and 1, plain
    c.handle(SwitchLog(True))
    c.new(), c.new(), c.wait(1)  # entry 2
    c.add(1, P[0]), c.wait(1)  # entry 3, of a single record
    c.handle(SwitchLog(False))
    c.open()  # entry 4
    assert state(c) == LogReport(False, 5, 6, 2, 0, 3)
    assert state(c).text == (
        "batching is off, 5 entries from 0 on, 6 live records: 2 batched, the last of them is 3"
    )
    c.end(1), c.acknowledge_all()
    assert (state(c).batched, state(c).last_batched) == (1, 2), "half of it is live"
    c.restart()
    assert state(c).last_batched == 2
    c.end(2)
    assert state(c) == LogReport(False, 3, 3, 0, 0, None)
    assert state(c).text.endswith("3 live records: no batched entries are left")


def test_a_damaged_entry_is_no_report() -> None:
    keys = Keys()
    keys.rows[b"l" + bytes(8)] = b"\xc1"
    with pytest.raises(FormatError):
        report(keys, False)


class Writer:
    """A log alone, batching up to 4 records or 100 bytes."""

    def __init__(self, batching: bool = True) -> None:
        self.keys = Keys()
        self.shell: Any = FakeShell(PulsarSettings())  # type: ignore[arg-type]
        settings = LogSettings(batching, 4, 100, 1.0)
        self.log = BatchedLog(self.keys, self.shell, settings, keep=None)
        self.done: list[tuple[Any, str]] = []

    def append(self, *record: Any) -> None:
        self.log.append(record, lambda error, _: self.done.append((record, error)))

    def entries(self) -> list[int]:
        """Returns the number of records of each entry."""
        return [len(decode_entry(value)) for _, value in self.keys.scan(b"l", b"m")]


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_scenario_6_each_trigger_counts_itself_only(trigger: str) -> None:
    w = Writer()
    w.append("a")
    if trigger == "max_records":
        w.append("b"), w.append("c"), w.append("d")
    elif trigger == "max_bytes":
        w.append(b"x" * 85)
    elif trigger == "large_data":
        w.append(b"x" * 200)
    elif trigger == "max_delay":
        w.log.wake(0)
    else:
        w.log.flush()
    counters = w.log.counters()
    assert [name for name in TRIGGERS if counters[name]] == [trigger]
    assert counters[trigger] == 1


def test_scenario_6_without_batching_nothing_is_counted() -> None:
    w = Writer(batching=False)
    for n in range(10):
        w.append(n, b"x" * 90)
    assert not any(any(v) if isinstance(v, list) else v for v in w.log.counters().values())


@pytest.mark.parametrize("batching", [True, False])
def test_scenario_7_a_record_that_cannot_be_written_ends_its_own_call_only(batching: bool) -> None:
    w = Writer(batching)
    w.append("a")
    w.append(1 << 70)
    w.append("b")
    w.log.flush()
    errors = {record[0]: error for record, error in w.done}
    assert errors == {"a": "", 1 << 70: "INVALID_REQUEST", "b": ""}
    assert len(w.done) == 3 and sum(w.entries()) == 2


def test_scenario_8_two_records_of_nine_tenths_of_the_limit_make_two_entries() -> None:
    w = Writer()
    w.append(b"x" * 85)
    w.append(b"y" * 85)
    w.log.flush()
    assert w.entries() == [1, 1]
    assert all(len(value) <= 100 for _, value in w.keys.scan(b"l", b"m"))
