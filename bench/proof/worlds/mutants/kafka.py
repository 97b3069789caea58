"""Lists bugs to plant in mode kafka: partitions, transaction and group coordinators, readers.

Published ones name their source: KAFKA-… are Apache Kafka's issues, others by project.

Left out, since they cause no anomaly and 40 seeds showed none: a producer's window of one batch in place of five
(a retry fails needlessly), and an EndTxn that meets the previous one and is answered "done".

Next: mutant.py.
"""

from dataclasses import replace

from .mutant import Mutant

_MUTANTS = (
    Mutant(
        "epoch-for-ever",
        "the end of a transaction does not raise the epoch: a late end lands on the next",
        "coordinator.kafka.transactions:Transactions._prepare",
        "epoch=min(row.epoch + 1, EPOCH_MAX),",
        "epoch=row.epoch,",
        source="KAFKA-17754 (Jepsen): EndTxn of transaction n lands on n + 1",
    ),
    Mutant(
        "epoch-unchecked",
        "a partition takes batches of a producer that was fenced",
        "tablets.kafka.producer_state:check",
        "if epoch < state.epoch:",
        "if epoch < 0:",
        source="KIP-98, KIP-890: the epoch of a zombie is not checked",
    ),
    Mutant(
        "unverified",
        "version 2 appends a transaction's first batch without asking its coordinator",
        "tablets.kafka.partition:Partition._produce",
        "and message.version >= 2",
        "and message.version >= 3",
        source="KAFKA-9144, KAFKA-14053: a late batch hangs its partition",
    ),
    Mutant(
        "aborted-shown",
        "readers of committed data are shown what was aborted",
        "proxy.read_filter:visible",
        "elif kind != commit and not (kind == transactional and producer in out):",
        "elif kind != commit:",
        source="librdkafka#3020, streamnative/kop#1283: aborted records delivered",
    ),
    Mutant(
        "open-shown",
        "a marker moves the last stable offset to the end, whatever else is open",
        "tablets.kafka.partition:Partition._end",
        'stable = int.from_bytes(first[0][0][1:], "big") if first else behind',
        "stable = behind",
        source="KAFKA-5355, KAFKA-5376: isolation lost in a fetch",
    ),
    Mutant(
        "sequence-unchecked-kafka",
        "a batch is taken whatever its sequence, unless it is one of the last five",
        "tablets.kafka.producer_state:_in_sequence",
        "return sequence == last_sequence(state.batches[-1][1], 2)",
        "return True",
        source="redpanda#3039 (Jepsen): duplicate writes",
    ),
    Mutant(
        "marker-repeated",
        "a marker that comes again is written again, and ends what is open by then",
        "tablets.kafka.producer_state:numbered_before",
        "return 0 < number <= state.number",
        "return False",
        source="KAFKA-19999: what a retried marker meets",
    ),
    Mutant(
        "markers-forgotten",
        "after a restart the markers of what was decided are not sent",
        "coordinator.kafka.transactions:Transactions.begin",
        "self.markers.send(name, row)",
        "pass",
        source="TransactionStateManagerTest: recovery must send them again",
    ),
    Mutant(
        "zombie-unfenced",
        "a new producer of a transactional id is given the epoch of the one before",
        "coordinator.kafka.transactions:Transactions._raised",
        "producer, epoch, last = row.producer, row.epoch + 1, -1",
        "producer, epoch, last = row.producer, row.epoch, -1",
        source="Bufstream 0.1.0, Redpanda 21.10.1 (Jepsen): lost and aborted writes of zombies",
    ),
    # our own
    Mutant(
        "open-passed",
        "a plain batch moves the last stable offset over what is open",
        "tablets.kafka.partition:Partition._append",
        "stable if transactional or stable < end else behind",
        "stable if transactional else behind",
    ),
    Mutant(
        "abort-unnoted",
        "the index of aborted transactions misses one",
        "tablets.kafka.partition:Partition._end",
        "if not message.commit:",
        "if False:",
    ),
    Mutant(
        "positions-of-aborted",
        "positions move although their transaction aborted",
        "coordinator.kafka.groups:Groups._ended",
        "if message.commit and (known is None or known.logged_at < pending.logged_at):",
        "if known is None or known.logged_at < pending.logged_at:",
    ),
    Mutant(
        "generation-ignored",
        "a member of a generation that is over may commit positions",
        "coordinator.kafka.groups:Groups._refused",
        'return "" if message.generation == generation else "ILLEGAL_GENERATION"',
        'return ""',
    ),
    Mutant(
        "never-timed-out",
        "a transaction that its producer left is never ended",
        "coordinator.kafka.transactions:Transactions._abort_old",
        "if row.start_ms + row.timeout_ms < now:",
        "if False:",
    ),
    Mutant(
        "ids-again",
        "after a restart the same producer ids are given again",
        "coordinator.logged_rows:TransactionRows.new_id",
        'self.space.put(b"i", end)',
        "pass",
    ),
)

MUTANTS = tuple(replace(mutant, mode="kafka") for mutant in _MUTANTS)
