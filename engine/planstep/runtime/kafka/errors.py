"""Turns Kafka's error names into exceptions for the caller, in one place.

Next: hooks.py.
"""

from ...errors import KafkaError, NoSpace, PlanstepError, ProducerFenced
from ...proto.kafka.settings import ERRORS

_ADVICE = {
    "UNKNOWN_SERVER_ERROR": "a bug of the engine's: the log has the exception",
    "PRODUCER_FENCED": "another producer has taken the transactional id, or the transaction was open for "
    "longer than transaction_timeout_ms: this one is at its end",
    "INVALID_PRODUCER_EPOCH": "the transaction was aborted by its coordinator, or another producer has "
    "taken the transactional id",
    "ILLEGAL_GENERATION": "the group's members changed since this one read: run the transaction again",
    "UNKNOWN_MEMBER_ID": "the group has let this member go: read again",
    "CONCURRENT_TRANSACTIONS": "the previous transaction of this transactional id has not ended yet",
    "UNSTABLE_OFFSET_COMMIT": "a position waits for the end of a transaction: its markers, or its time-out",
    "INVALID_PRODUCER_ID_MAPPING": "the transactional id expired: run the transaction again",
    "TRANSACTION_ABORTABLE": "abort and run the transaction again",
    "INVALID_TXN_STATE": "the transaction has already ended, with another result",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "a batch before this one was lost: run the transaction again",
    "UNKNOWN_TOPIC_OR_PARTITION": "the topic was dropped",
}


def kafka_error(name: str, where: str = "") -> PlanstepError:
    """Makes the exception for an error name of Kafka's; `where` says what it is about."""
    if name == "NO_SPACE":
        return NoSpace(
            "the disk is full: free some space (`no_space` in the log says how much was needed); "
            "nothing was written or lost"
        )
    kind = ERRORS[name]
    text = ": ".join(part for part in (name, where, _ADVICE.get(name, "")) if part)
    exception = ProducerFenced if name == "PRODUCER_FENCED" else KafkaError
    return exception(text, name=name, code=kind.code, retryable=kind.retriable or kind.abortable)
