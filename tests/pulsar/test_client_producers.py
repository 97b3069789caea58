"""Tests the producers, plain writes and single requests of a client. See client_kit.py."""

from client_kit import client, in_transaction, partition, talk, with_batch

from planstep.proto.pulsar.messages import NewTxn, Seek, Send
from planstep.proto.shell import Answer
from planstep.proxy.pulsar.client import Client

P0 = partition("p0")


def test_40_ten_transactions_of_1000_sends_keep_their_order() -> None:
    c = client()
    for n in range(10):
        c.begin(b"%d" % n)
        for m in range(1_000):
            c.send(b"%d" % n, "w", {P0: [(b"%d %d" % (n, m), 1)]})
        c.commit(b"c%d" % n, b"%d" % n)
    sent, ended = answer_all(c)
    assert dict(ended) == {b"c%d" % n: "" for n in range(10)}
    assert [message.sequence for message in sent] == list(range(10_000))
    for n in range(10):
        mine = [message.data for message in sent if message.least == n]
        assert mine == [b"%d %d" % (n, m) for m in range(1_000)]


def answer_all(c: Client) -> tuple[list[Send], list[tuple[bytes, str]]]:
    """Answers each request in order; returns the sends, and the ends of calls."""
    sent: list[Send] = []
    ended: list[tuple[bytes, str]] = []
    least = iter(range(10))
    while c.out or c.ended:
        out, _, ends = c.take()
        ended += [(end.call, end.error) for end in ends]
        for target, message, _ in out:
            value = (0, next(least)) if isinstance(message, NewTxn) else None
            if isinstance(message, Send):
                sent.append(message)
            c.handle(Answer(message.request, target, "", value or len(sent)))
    return sent, ended


def test_one_batch_of_a_producer_and_partition_is_on_the_way() -> None:
    in_transaction("""
        send t p0x1+2 q0x1
        -> AddPartition (0,0) p0
        -> AddPartition (0,0) q0
        ok Add
        -> Send p0 (0,0) w:0 x1
        ok Add
        -> Send q0 (0,0) w:0 x1
        send t@v p0x4
        -> Send p0 (0,0) v:3 x4
        ok Send p0 (0,0) w
        -> Send p0 (0,0) w:2 x2
        ok Send p0 (0,0) w
    """)


def test_a_batch_is_sent_again_under_its_number_until_it_is_answered() -> None:
    """A transaction's sends have no time-out but that of the transaction."""
    with_batch("""
        send t p0x1
        wait 10000
        -> Send p0 (0,0) w:0 x1
        wait 10000
        -> Send p0 (0,0) w:0 x1
        TooManyRequests last Send
        wait 100
        -> Send p0 (0,0) w:0 x1
        TopicNotFound first Send
        ok first Send
        -> Send p0 (0,0) w:1 x1
        ok Send p0 (0,0) w:0
    """)


def test_a_refused_attempt_is_not_late_as_well() -> None:
    """Its time-out may pass while the next attempt is not sent yet."""
    with_batch("""
        ServiceNotReady Send
        wait 10000
        wait 100
        -> Send p0 (0,0) w:0 x1
        ok Send
    """)


def test_messages_of_two_transactions_share_no_batch_and_one_line() -> None:
    with_batch("""
        begin u
        -> NewTxn c0 60000 ms
        ok NewTxn
        send u p0x1
        -> AddPartition (0,1) p0
        send t p0x1
        ok Add
        plain p0x1
        ok Send
        -> Send p0 (0,0) w:1 x1
        ok Send
        -> Send p0 (0,1) w:2 x1
        ok Send
        -> Send p0 plain w:3 x1
        ok Send
        == ok p0 3-4
    """)


def test_the_number_of_a_refused_batch_is_not_given_again() -> None:
    """A copy of the refused message may still arrive, and be taken for the next batch."""
    with_batch("""
        NoSpace Send
        plain p0x2
        -> Send p0 plain w:2 x2
    """)


def test_a_dropped_transaction_leaves_its_line_in_order() -> None:
    with_batch("""
        send t p0x1
        drop t
        plain p0x1
        InvalidTxnStatus Send
        -> Send p0 plain w:1 x1
    """)


def test_a_dropped_repeat_has_no_offset() -> None:
    hosts = with_batch("")
    hosts.client.commit(b"c", b"t")
    _, target, message = hosts.find("Send")
    hosts.client.handle(Answer(message.request, target, "", -1))
    hosts.collect()
    assert hosts.lines[-1] == "-> EndTxn (0,0) commit"
    hosts.answer("", "End")
    assert [end.value for end in hosts.client.take()[2]] == [{}]


def test_a_writer_may_number_its_batches() -> None:
    c = client()
    c.plain(b"c", "w", {P0: [(b"a", 2), (b"b", 1)]}, {P0: [7, 20]})
    c.plain(b"d", "w", {P0: [(b"c", 3)]})
    sequences = []
    for _ in range(3):
        ((target, message, _),) = c.take()[0]
        sequences.append(message.sequence)
        c.handle(Answer(message.request, target, "", 0))
    assert sequences == [7, 20, 23]


def test_a_producer_goes_on_after_an_earlier_process() -> None:
    c = client()
    for last in (41, 7):
        c.go_on_after("w", P0, last)
    c.plain(b"c", "w", {P0: [(b"a", 2)]})
    assert [message.sequence for _, message, _ in c.out] == [43]


# plain -------------------------------------------------------------------------------------------


def test_plain_writes_end_with_what_was_written() -> None:
    talk("""
        plain p0x1+2 q0x1
        -> Send p0 plain w:0 x1
        -> Send q0 plain w:0 x1
        TopicNotFound Send q0
        ok Send p0
        -> Send p0 plain w:2 x2
        ok Send p0
        == TopicNotFound p0 0-3
        plain p0x1
        -> Send p0 plain w:3 x1
        ok Send
        == ok p0 3-4
    """)


def test_a_plain_write_has_a_time_out() -> None:
    hosts = talk("""
        plain p0x1+1
        -> Send p0 plain w:0 x1
        plain q0x1
        -> Send q0 plain w:0 x1
        ok Send q0
        == ok q0 0-1
        begin t
        -> NewTxn c0 60000 ms
        ok NewTxn
        send t p0x1
        -> AddPartition (0,0) p0
        ok Add
        wait 30000
        -> Send p0 (0,0) w:1 x1
        == Timeout
        ok Send p0 plain
        ok Send p0
    """)
    assert hosts.awaited == [60_000]


def test_an_empty_write_ends_at_once() -> None:
    c = client()
    c.plain(b"c", "w", {P0: []})
    assert [(end.call, end.error, end.value) for end in c.take()[2]] == [(b"c", "", {})]


def test_plain_acknowledgements() -> None:
    talk("""
        plain ack p0/s 0-5 9-10
        -> Ack p0/s plain 0-5 9-10
        plain ack p0/s ..7
        -> Ack p0/s plain ..7
        late Ack p0/s plain ..
        -> Ack p0/s plain ..7
        ok Ack p0/s plain ..
        == ok
        ServiceNotReady Ack p0/s plain 0
        wait 100
        -> Ack p0/s plain 0-5 9-10
        NotAllowedError Ack p0/s plain 0
        == NotAllowedError
    """)


def test_one_request_that_nobody_answers_ends() -> None:
    c = client()
    c.ask(b"call", P0, lambda address, n: Seek(address, n, "s", 5))
    for delay, token in list(c.timers):
        if delay == 30_000:
            c.wake(token)
    assert [end.error for end in c.ended] == ["Timeout"]
    assert not [token for _, token in c.timers if c.awaits(token)]


def test_requests_are_counted_for_whom_they_are() -> None:
    c = client()
    c.plain(b"call", "w", {P0: [(b"d", 1)], partition("q0"): [(b"d", 1)]}, tx=b"one")
    c.begin(b"two")
    assert [tx for _, _, tx in c.out] == [b"one", b"one", b"two"]
    assert (c.requests, c.requests_of(b"one"), c.requests_of(b"two")) == (3, 2, 1)
