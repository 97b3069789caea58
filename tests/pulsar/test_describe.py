"""Tests how the log of a transaction coordinator is told."""

from transactions_kit import Coordinator, P

from planstep.coordinator.pulsar.describe import logged


def name(tablet: int) -> str:
    return f"clicks[{tablet & 0xFF}]" if tablet in P else "coordinator"


def test_a_log_is_told_record_by_record() -> None:
    c = Coordinator()
    c.open(P[0], P[1], timeout_ms=500)
    c.subscribe(0, (P[1], "c"), (P[0], "d"))
    c.wait(500)
    told = [
        line
        for key, value in c.keys.scan(b"l", b"m")
        for line in logged(name, c.tablet_id, key[1:], value)
    ]
    assert told == [
        "coordinator: (0,0) opened, time-out 500 ms",
        "coordinator: (0,0) writes clicks[0], clicks[1]",
        "coordinator: (0,0) acknowledges clicks[1] for c, clicks[0] for d",
        "coordinator: (0,0) ABORTING, timed out",
    ]


def test_records_of_one_append_say_so() -> None:
    c = Coordinator(log_batching=True)
    c.new(), c.new()
    c.wait(1)
    (entry,) = c.keys.scan(b"l", b"m")
    told = [*logged(name, c.tablet_id, entry[0][1:], entry[1])]
    assert told == [
        "coordinator: (0,0) opened, time-out 60000 ms (1 of 2 in one append)",
        "coordinator: (0,1) opened, time-out 60000 ms (2 of 2 in one append)",
    ]


def test_a_damaged_entry_says_what_to_do() -> None:
    (told,) = logged(name, P[0], b"", b"\xc1")
    assert "restore the store from a backup" in told
