"""Tests how the client's errors are answered, and what its settings are; no broker is needed."""

import contextlib
import time

import pytest

kafka = pytest.importorskip("confluent_kafka")

from planstep.bench.compare.systems.apache_kafka_client import (  # noqa: E402 - it imports the client
    CLIENTS,
    Client,
    Connection,
    calling,
    retried,
)
from planstep.bench.compare.systems.apache_kafka_server import cluster_id  # noqa: E402
from planstep.bench.compare.systems.base import Cancelled, Unknown  # noqa: E402

LATER = time.monotonic() + 3600


def refusal(name: str, **more: bool) -> Exception:
    error: Exception = kafka.KafkaException(
        kafka.KafkaError(getattr(kafka.KafkaError, name), **more)
    )
    return error


def test_a_broker_that_is_not_a_coordinator_yet_is_asked_again() -> None:
    answers = [refusal("NOT_COORDINATOR"), refusal("_TIMED_OUT", retriable=True), None]

    def ask(question: str) -> str:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return question

    assert retried(ask, "where", until=LATER) == "where"
    assert not answers


def test_other_errors_and_those_past_the_time_are_not_asked_again() -> None:
    asked = []

    def ask(name: str) -> None:
        asked.append(name)
        raise refusal(name)

    with pytest.raises(kafka.KafkaException):
        retried(ask, "UNKNOWN_PRODUCER_ID", until=LATER)
    with pytest.raises(kafka.KafkaException):
        retried(ask, "NOT_COORDINATOR", until=time.monotonic() - 1)
    assert asked == ["UNKNOWN_PRODUCER_ID", "NOT_COORDINATOR"]


def test_a_fenced_producer_does_not_know_what_became_of_a_commit() -> None:
    with pytest.raises(Cancelled, match="PRODUCER_FENCED"), calling():
        raise refusal("_FENCED", fatal=True)
    with pytest.raises(Unknown), calling(unknown=True):
        raise refusal("_FENCED", fatal=True)  # the reply to an earlier request may have been lost
    with pytest.raises(Cancelled), calling(unknown=True):
        raise refusal("INVALID_RECORD", txn_requires_abort=True)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize("time_out_ms", [10, 60_000])
def test_clients_take_any_time_out_of_a_transaction(client: Client, time_out_ms: int) -> None:
    connection = Connection("127.0.0.1:1", client, "prefix", time_out_ms)
    assert connection.time_out_ms == max(1000, time_out_ms)
    with contextlib.closing(connection.transactional_producer("worker")) as producer:
        # There is no broker. Settings that do not fit would be refused first, by a RuntimeError.
        with pytest.raises(kafka.KafkaException, match="_TRANSPORT"):
            producer.list_topics("topic", timeout=0.1)


def test_no_id_of_a_cluster_looks_like_an_option() -> None:
    ids = {cluster_id() for _ in range(2000)}
    assert len(ids) == 2000 and {len(one) for one in ids} == {22}
    assert not any(one.startswith("-") for one in ids)
