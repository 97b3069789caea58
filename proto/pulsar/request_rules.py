"""Lists the requests that clients of mode "pulsar" send, for the owner of a store whose clients are elsewhere.

Next: ../request_rules.py.
"""

from typing import Any

from ..ids import PARTITION, TRANSACTIONS
from ..request_rules import NUMBER_MAX, RequestRules
from .messages import (
    AbortTxn,
    Ack,
    AddPartitionToTxn,
    AddSubscriptionToTxn,
    DropSubscription,
    EndTxn,
    NewTxn,
    Seek,
    Send,
    SwitchLog,
    TrimTo,
)


def _named(message: Any) -> tuple[int, ...]:
    match message:
        case AddPartitionToTxn():
            return tuple(message.partitions)
        case AddSubscriptionToTxn():
            return tuple(tablet for tablet, _ in message.subscriptions)
    return ()


RULES = RequestRules(
    places={
        **dict.fromkeys(
            (NewTxn, AddPartitionToTxn, AddSubscriptionToTxn, EndTxn, AbortTxn), (TRANSACTIONS,)
        ),
        **dict.fromkeys((Send, Ack, Seek, DropSubscription, TrimTo), (PARTITION,)),
        SwitchLog: (PARTITION, TRANSACTIONS),
    },
    numbers={
        (None, "most"): (-1, NUMBER_MAX),
        (None, "least"): (-1, NUMBER_MAX),
        (None, "timeout_ms"): (-NUMBER_MAX, NUMBER_MAX),  # the coordinator answers that itself
    },
    batches=(Send,),
    named=_named,
)
