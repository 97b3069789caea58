"""Tests how a Kafka topic is reached and checked: URLs, settings, and real brokers where they are."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import replica_kit
from kafka_kit import InTopic, admin_of, alter, guarded_broker, needs_kafka, patiently
from peers import long
from replica_kit import Machines, rows
from shared_kit import ROOT, at, data_of, filled, history, nonce, read_all, turn_behind

import planstep
from planstep.errors import (
    Fenced,
    FormatError,
    IoError,
    LogUnreachable,
    MissingExtra,
    NotSupported,
)
from planstep.shared import check_log as check_log_module
from planstep.shared import kafka_topic
from planstep.shared.check_log import check_log
from planstep.shared.entry import Owner
from planstep.shared.kafka_settings import CONFIG, address_of, settings_of_users
from planstep.shared.registry import erase_shared_log, open_shared_log

machines = replica_kit.machines
FIRST = Owner(1, nonce("first"))
NOBODY = "kafka://127.0.0.1:1/shop"
needs = needs_kafka()


def marked(function: Any) -> Any:
    for mark in needs:
        function = mark(function)
    return function


# URLs and settings -----------------------------------------------------------------------------


def test_a_url_names_brokers_and_a_topic() -> None:
    address = address_of("kafka://one.example:9092,[::1]:9093,three/shop.log-1?allow_weak=true")
    assert address == ("one.example:9092,[::1]:9093,three", "shop.log-1", True)
    assert address.where == "kafka://one.example:9092,[::1]:9093,three/shop.log-1"
    assert address_of("KAFKA://one/shop") == address_of("kafka://one/shop?allow_weak=false")


@pytest.mark.parametrize(
    "url",
    [
        "kafka:///shop",
        "kafka://one",
        "kafka://one/",
        "kafka://one/a/b",
        "kafka://one/..",
        "kafka://one/shop?weak=true",
        "kafka://one/shop?allow_weak=1",
        "kafka://ann:a-secret@one/shop",
        "kafka://one,/shop",
        f"kafka://one/{'x' * 250}",
    ],
)
def test_other_urls_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(
        ValueError, match="write a Kafka topic as kafka://host:9092/topic"
    ) as refused:
        open_shared_log(url, ROOT)
    assert "a-secret" not in str(refused.value)


def settings(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (path / "client.properties").write_text(text)
    monkeypatch.setenv(CONFIG, str(path / "client.properties"))


def test_a_file_says_how_to_reach_the_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "# how\n\n security.protocol = SASL_SSL \nsasl.password=a=b#c\n"
    settings(tmp_path, text, monkeypatch)
    assert settings_of_users() == {"security.protocol": "SASL_SSL", "sasl.password": "a=b#c"}
    monkeypatch.delenv(CONFIG)
    assert settings_of_users() == {}


@pytest.mark.parametrize(
    "line", ["acks=0", "group.id=x", "a-secret", "=a-secret", "bogus=a-secret"]
)
def test_settings_of_the_log_itself_are_refused(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(tmp_path, f"# a comment\n{line}\n", monkeypatch)
    with pytest.raises(ValueError, match=f"line 2 of the file that {CONFIG} names") as refused:
        open_shared_log(NOBODY, ROOT)
    assert "a-secret" not in str(refused.value)


@pytest.mark.parametrize("line", ["sasl.bogus=a-secret", "security.protocol=a-secret"])
def test_settings_that_the_library_refuses_are_not_shown(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("confluent_kafka")
    settings(tmp_path, line, monkeypatch)
    with pytest.raises(ValueError, match="the library refuses a setting") as refused:
        open_shared_log(NOBODY, ROOT)
    assert "a-secret" not in str(refused.value) and refused.value.__context__ is None


def test_a_file_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONFIG, str(tmp_path / "nothing"))
    with pytest.raises(IoError, match=f"the file that {CONFIG} names cannot be read"):
        settings_of_users()


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingExtra, match=r'pip install "planstep\[kafka\]"'):
        open_shared_log(NOBODY, ROOT)


def test_brokers_that_are_away_are_an_error_of_one_sentence(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("confluent_kafka")
    for _ in range(2):
        with pytest.raises(IoError, match=f"{NOBODY}: no connection to a"):
            open_shared_log(NOBODY, ROOT)
    assert capfd.readouterr() == ("", "")  # the library would write lines to stderr
    told = [record for record in caplog.records if record.name == "planstep"]
    assert [record.event for record in told] == ["broker_trouble"]  # type: ignore[attr-defined]


class Consumer:
    """A consumer that has fetched records in advance, of a broker that does not answer one question."""

    def __init__(self, kafka: Any, count: int) -> None:
        self._kafka = kafka
        self._count = count
        self._at = 0
        self.answers = False

    def assign(self, places: list[Any]) -> None:
        self._at = places[0].offset

    def poll(self, wait: float = 0) -> Any:
        if self._at == self._count:
            return None
        self._at += 1
        offset = self._at - 1
        return SimpleNamespace(
            error=lambda: None, offset=lambda: offset, key=lambda: b"", value=lambda: b"%d" % offset
        )

    def get_watermark_offsets(self, *_: Any, **more: Any) -> tuple[int, int]:
        if not self.answers:
            raise self._kafka.KafkaException(
                self._kafka.KafkaError(self._kafka.KafkaError._TRANSPORT)
            )
        return 0, self._count

    def close(self) -> None:
        """Does nothing."""


def test_a_question_without_an_answer_takes_no_record_away() -> None:
    kafka = pytest.importorskip("confluent_kafka")
    topic = kafka_topic.Topic(address_of(NOBODY))
    topic._consumer.close()
    topic._consumer = consumer = Consumer(kafka, 2)
    assert [record.data for record in topic.fetch(0, 0)[0]] == [b"0", b"1"]
    consumer._count = 4  # fetched in advance
    with pytest.raises(IoError):
        topic.bounds()
    consumer.answers = True
    assert topic.bounds() == (0, 4)
    assert [record.data for record in topic.fetch(2, 0)[0]] == [b"2", b"3"]
    topic.close()


def test_the_race_of_a_topic_needs_a_broker() -> None:
    pytest.importorskip("confluent_kafka")
    with pytest.raises(IoError, match=r"shop-check-.*: no connection to a broker"):
        check_log(NOBODY, 1, lambda *_: None)


@marked
def test_a_race_runs_in_a_topic_beside_and_removes_it(
    topic: InTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_log_module, "_SLOTS_MIN", 1)  # a busy machine may be slow
    entries = filled(topic, 2)
    report = check_log(topic.url, 3, lambda *_: None)
    assert (report.verdict, report.left, report.large_slots) == ("passed", None, 0), report
    assert report.slots >= 1
    assert data_of(read_all(topic.open())) == data_of(entries)


# a real broker ---------------------------------------------------------------------------------


@marked
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("cleanup.policy", "compact", "cleanup.policy is compact, not delete"),
        ("cleanup.policy", "compact,delete", "cleanup.policy is compact,delete, not delete"),
        ("retention.ms", "604800000", "retention.ms is 604800000, not -1"),
        ("retention.bytes", "1000000000", "retention.bytes is 1000000000, not -1"),
        ("unclean.leader.election.enable", "true", "unclean.leader.election.enable is true"),
        ("max.message.bytes", "500000", "max.message.bytes is below 1,000,000"),
    ],
)
def test_a_topic_that_may_lose_turns_is_refused(
    topic: InTopic, name: str, value: str, words: str
) -> None:
    topic.open().close()
    alter(topic.url, name, value)

    def refused() -> bool:  # the broker takes a moment to know
        try:
            topic.open()
        except NotSupported as error:
            return words in str(error)
        return False

    patiently(refused)


@marked
def test_a_topic_of_one_broker_or_several_partitions_is_refused(broker: str) -> None:
    from confluent_kafka.admin import NewTopic

    url = f"kafka://{broker}/strict"
    with pytest.raises(NotSupported, match=r"needs 3 brokers.*allow_weak=true"):
        open_shared_log(url, ROOT)
    admin = admin_of(broker)  # it lives until the answer is there
    (made,) = admin.create_topics([NewTopic("strict", 2, 1)]).values()
    made.result()
    words = "it has 2 partitions, not 1; it has 1 replicas, not 3 or more; min.insync.replicas"
    with pytest.raises(NotSupported, match=words):
        open_shared_log(url, ROOT)


@marked
def test_a_topic_is_made_for_a_new_log_alone(topic: InTopic) -> None:
    with pytest.raises(FormatError, match="there is no such topic"):
        open_shared_log(topic.url, None)
    topic.open().close()
    log, root = open_shared_log(topic.url, None)
    assert root == ROOT
    log.close()
    erase_shared_log(topic.url)
    erase_shared_log(topic.url)

    def gone() -> bool:
        try:
            open_shared_log(topic.url, None)[0].close()
        except FormatError:
            return True
        return False

    patiently(gone)


@marked
def test_records_of_others_even_of_transactions_are_passed_over(topic: InTopic) -> None:
    from confluent_kafka import Producer

    address = address_of(topic.url)
    owner = topic.open()
    entries = history(3)
    owner.append(entries[0])
    own = {"bootstrap.servers": address.brokers, "log_level": 0}
    for more in ({}, {"transactional.id": address.topic}):
        producer: Any = Producer({**own, **more})
        if more:
            producer.init_transactions(60)
            producer.begin_transaction()
        producer.produce(address.topic, b"an order", b"a key", partition=0)
        producer.produce(address.topic, None, b"a key", partition=0)
        assert producer.flush(60) == 0
        if more:
            producer.commit_transaction(60)
        owner.append(entries[1 + bool(more)])
        owner.barrier()
    reader = topic.open()
    assert data_of(read_all(reader)) == data_of(entries)
    assert reader.read(1, 0) == []


@marked
def test_a_turn_of_16_mib_goes_in_parts(topic: InTopic) -> None:
    (begin,) = filled(topic, 1)
    owner = topic.open()
    assert len(read_all(owner)) == 1
    large = turn_behind(begin, FIRST, bytes(range(256)) * (1 << 16))
    mark = owner.append(large)
    small = turn_behind(large, FIRST)
    owner.append(small)
    reader = topic.open()
    found = read_all(reader, begin)
    assert data_of(found) == [large.data, small.data]
    assert found[0].mark == mark
    assert data_of(read_all(topic.open(), found[0])) == [small.data]


@marked
def test_a_topic_that_is_trimmed_begins_with_the_turn(topic: InTopic) -> None:
    entries = filled(topic, 6)
    topic.open().trim(4, entries[2].mark)
    topic.open().trim(4, entries[2].mark)
    log = topic.open()
    assert log.floor() == 4
    assert read_all(log, entries[2]) == entries[3:]
    log.append(turn_behind(entries[5], FIRST))


@marked
def test_a_topic_that_is_deleted_is_unreachable_in_words(topic: InTopic) -> None:
    (begin,) = filled(topic, 1)
    owner = topic.open()
    owner.open(at(begin))
    erase_shared_log(topic.url)
    owner.wait_less(1)
    with pytest.raises(LogUnreachable, match="was not reached for 1 seconds"):
        owner.append(turn_behind(begin, FIRST))


@marked
def test_a_turn_that_is_larger_than_the_clients_queue_goes_through(
    topic: InTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**kafka_topic._PRODUCER, "queue.buffering.max.messages": 2}
    monkeypatch.setattr(kafka_topic, "_PRODUCER", settings)
    (begin,) = filled(topic, 1)
    owner = topic.open()
    assert len(read_all(owner)) == 1
    large = turn_behind(begin, FIRST, bytes(8 << 20))
    owner.append(large)
    assert data_of(read_all(topic.open(), begin)) == [large.data]


LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="root" password="root-secret" user_root="root-secret" user_ann="a-secret";'
)


@marked
@long
def test_credentials_come_from_the_file_and_wrong_ones_are_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def login(user: str, password: str) -> None:
        lines = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN"]
        lines += [f"sasl.username={user}", f"sasl.password={password}"]
        settings(tmp_path, "\n".join(lines), monkeypatch)

    with guarded_broker(tmp_path, LOGIN) as broker:
        url = f"kafka://{broker.address}/shop?allow_weak=true"

        def attempt() -> str:
            try:
                open_shared_log(url, ROOT, 10)[0].close()
            except IoError as error:
                return str(error)
            return "open"

        login("root", "a-wrong-secret")
        patiently(lambda: "the brokers refuse the credentials" in attempt())
        login("ann", "a-secret")
        patiently(lambda: "the brokers forbid it: allow Create, Read" in attempt())
        login("root", "root-secret")
        patiently(lambda: attempt() == "open")
        log, _ = open_shared_log(url, ROOT, 10)
        (begin,) = history(1)
        log.append(begin)
        log.close()
        login("ann", "a-secret")
        assert "the brokers forbid it: allow Create, Read" in attempt()
    assert "secret" not in caplog.text


# stores ----------------------------------------------------------------------------------------


@pytest.fixture
def on_kafka(machines: Machines, broker: str) -> Machines:
    machines.url = InTopic(broker).url
    return machines


@marked
def test_a_store_goes_on_from_its_topic_in_an_empty_folder(on_kafka: Machines) -> None:
    with on_kafka.open("a") as db:
        db.create_table("t").put("k", 7)
        db.create_topic("events", format="utf8").write_batch(["x", "y"])
        store: Any = db._runtime.nodes[0].host.store
        assert store._log.synced == store.last_turn  # each turn is on this disk too
    with on_kafka.open("b") as db:
        assert rows(db) == {"k": 7}
        assert db.topic("events").read(0).values == ["x", "y"]
        db.table("t").put("l", 8)
    with on_kafka.open("a") as db:
        assert rows(db) == {"k": 7, "l": 8}


@marked
def test_a_store_that_was_taken_over_is_fenced(on_kafka: Machines) -> None:
    with on_kafka.open("a") as first:
        first.create_table("t").put("k", 1)
        with pytest.raises(planstep.OwnedElsewhere):
            on_kafka.open("b")
        with on_kafka.take_over("b") as second:
            with pytest.raises(Fenced, match="term 2"):
                first.table("t").put("k", 2)
            second.table("t").put("l", 3)
            assert rows(second) == {"k": 1, "l": 3}


@marked
def test_a_commit_of_16_mib_is_there_elsewhere(on_kafka: Machines) -> None:
    value = bytes(range(256)) * (1 << 12)
    with on_kafka.open("a") as db:
        db.create_topic("events", format="bytes")
        with db.transaction() as tx:
            for _ in range(16):
                tx.write("events", value)
    with on_kafka.open("b") as db:
        found = db.topic("events").read(0, max_bytes=1 << 30).values
        assert found == [value] * 16


@marked
def test_a_topic_is_trimmed_behind_snapshots_that_lie_elsewhere(
    on_kafka: Machines, tmp_path: Path
) -> None:
    settings = on_kafka.replicate(
        snapshots=(tmp_path / "snapshots").as_uri(), snapshot_bytes=50_000, keep=1
    )

    def opened(name: str) -> planstep.Engine:
        return planstep.open(on_kafka.folder(name), replicate=settings)

    def first_turn() -> int:
        log, _ = open_shared_log(on_kafka.url, None)
        try:
            return log.floor()
        finally:
            log.close()

    with opened("a") as db:
        table = db.create_table("t")
        for n in range(40):
            table.put(n, "x" * 5_000)
    assert first_turn() > 1  # a snapshot at the close, if not before
    with opened("b") as db:
        assert len(rows(db)) == 40
        db.table("t").put(40, "y")
    with opened("a") as db:
        assert len(rows(db)) == 41
