"""Turns Pulsar's error names into exceptions for the caller, in one place.

Next: hooks.py.
"""

from ...errors import NoSpace, PlanstepError, PulsarError, TooManyGaps
from ...proto.pulsar.settings import kind_of_error

_ADVICE = {
    "UnknownError": "a bug of the engine's: the log has the exception",
    "TransactionConflict": "another transaction has acknowledged some of these records, or is about to: run the "
    "transaction again",
    "TransactionTimeout": "it was open for longer than its time-out, and is aborted: run it again",
    "TransactionHasOperationFailed": "a send or an acknowledgement was refused, so it was aborted: run it again",
    "InvalidTxnStatus": "the transaction has already ended, with another result",
    "TransactionNotFound": "its coordinator does not know it: it has ended, or was never given",
    "NotAllowedError": "the transaction has ended here, or the consumer's kind does not allow it",
    "ConsumerBusy": "it is exclusive, and another reader has it: close that one first",
    "ReachMaxActiveTxn": "as many transactions are open as max_active_transactions allows",
    "Timeout": "no answer came in operation_timeout_ms",
    "TopicNotFound": "the topic was dropped",
    "SubscriptionNotFound": "the consumer was dropped",
}


def pulsar_error(name: str, where: str = "") -> PlanstepError:
    """Makes the exception for an error name of Pulsar's; `where` says what it is about."""
    if name == "NoSpace":
        return NoSpace(
            "the disk is full: free some space (`no_space` in the log says how much was needed); "
            "nothing was written or lost"
        )
    text = ": ".join(part for part in (name, where, _ADVICE.get(name, "")) if part)
    if name == "TooManyGaps":
        return TooManyGaps(text)
    kind = kind_of_error(name)
    code = -1 if kind.code is None else kind.code
    return PulsarError(text, name=name, code=code, retryable=kind.retryable)
