"""Lists the requests that clients of mode "kafka" send, for the owner of a store whose clients are elsewhere.

Next: ../request_rules.py.
"""

from typing import Any

from ..ids import GROUPS, PARTITION, TRANSACTIONS
from ..request_rules import NUMBER_MAX, RequestRules
from .messages import (
    AddOffsets,
    AddPartitions,
    EndTxn,
    InitProducer,
    Join,
    Leave,
    OffsetCommit,
    Produce,
    TrimTo,
    TxnOffsetCommit,
)


def _named(message: Any) -> tuple[int, ...]:
    match message:
        case AddPartitions():
            return tuple(message.partitions)
        case AddOffsets():
            return (message.coordinator,)
        case OffsetCommit() | TxnOffsetCommit():
            return tuple(tablet for tablet, _ in message.offsets)
    return ()


RULES = RequestRules(
    places={
        **dict.fromkeys((InitProducer, AddPartitions, AddOffsets, EndTxn), (TRANSACTIONS,)),
        **dict.fromkeys((Produce, TrimTo), (PARTITION,)),
        **dict.fromkeys((Join, Leave, OffsetCommit, TxnOffsetCommit), (GROUPS,)),
    },
    numbers={
        (None, "generation"): (-1, NUMBER_MAX),
        (None, "timeout_ms"): (-NUMBER_MAX, NUMBER_MAX),  # the coordinator answers that itself
        (None, "version"): (0, 2),
        (InitProducer, "producer"): (-1, NUMBER_MAX),
        (InitProducer, "epoch"): (-1, NUMBER_MAX),
        (Produce, "sequence"): (0, (1 << 31) - 1),
    },
    batches=(Produce,),
    named=_named,
)
