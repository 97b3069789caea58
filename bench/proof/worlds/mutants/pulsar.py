"""Lists bugs to plant in mode pulsar: partitions, subscriptions, transaction coordinators, clients, readers.

Published ones name their source: numbers are Apache Pulsar's issues, whose symptom the bug has here.

Next: mutant.py.
"""

from dataclasses import replace

from .mutant import Mutant

_BUFFER = "tablets.pulsar.transaction_buffer:TransactionBuffer."
_ACKS = "tablets.pulsar.subscriptions:Subscriptions."
_COORDINATOR = "coordinator.pulsar.transactions:Transactions."
_CLIENT = "proxy.pulsar.transaction:Transaction."

_MUTANTS = (
    Mutant(
        "aborted-shown-pulsar",
        "readers are shown what was aborted",
        "runtime.pulsar.aborted_ids:AbortedIds.shown",
        "if not hidden:",
        "if True:",
        source="apache/pulsar#19814, streamnative/kop#1283: aborted messages are read",
    ),
    Mutant(
        "ack-outlives",
        "the end of a transaction leaves its acknowledgements pending",
        _ACKS + "_end",
        "elif reserved or self.rows.has(name, most, least):",
        "elif reserved:",
        source="apache/pulsar#19200: a pending acknowledgement outlives its transaction",
    ),
    Mutant(
        "late-ack-taken",
        "an acknowledgement that comes behind its transaction's end is pending for ever",
        _ACKS + "_pend",
        "if self._buffer.has_ended(most, least) or self._has_ended(name, most, least):",
        "if False:",
        source="apache/pulsar#19200: a pending acknowledgement outlives its transaction",
    ),
    Mutant(
        "open-again",
        "what is over is kept as if it were not",
        _COORDINATOR + "_over",
        'self.space.delete(_key(b"t", least))',
        "pass",
        source="apache/pulsar#20150: a transaction is there again after COMMITTED",
    ),
    Mutant(
        "first-snapshot-missed",
        "the first message of a transaction takes no snapshot, so recovery looks for no aborted ids",
        _BUFFER + "append",
        "self._take()",
        "pass",
        source="apache/pulsar#21406, #24945: the first snapshot",
    ),
    Mutant(
        "told-failed",
        "a commit whose transaction nobody knows any more is said to have failed",
        _CLIENT + "_committed",
        "name = error if error in _NOT_COMMITTED else UNDETERMINED",
        "name = error",
        source="apache/pulsar#19629, #20356: committed, and the client is told that it failed",
    ),
    Mutant(
        "failed-send-committed",
        "a transaction commits although one of its sends or acknowledgements failed",
        _CLIENT + "_step",
        "if self.state is State.COMMITTING and self.failed is not None:",
        "if False:",
        source="apache/pulsar#20055: commit with a failed operation",
    ),
    Mutant(
        "end-sent-once",
        "an end that was not acknowledged is not sent again",
        "coordinator.pulsar.ends:Ends.wake",
        "for participant in ending.left[: ending.sent]:",
        "for participant in ():",
        source="apache/pulsar#14192: a partition hangs although nothing is open",
    ),
    Mutant(
        "mark-too-high",
        "the low water mark passes transactions that are live",
        _COORDINATOR + "_send_end",
        "self.ends.begin(least, row, lowest - 1)",
        "self.ends.begin(least, row, self._counts[_NEXT] - 1)",
        source="apache/pulsar, TransactionLowWaterMarkTest: what the mark may abort",
    ),
    Mutant(
        "resend-taken",
        "a batch that is sent again is written again",
        "tablets.pulsar.partition:Partition._send",
        "message.sequence <= last",
        "message.sequence < last",
        source="apache/pulsar PIP-6, #15200: duplicates without deduplication",
    ),
    # our own
    Mutant(
        "open-shown-pulsar",
        "a marker moves max read to the end, whatever else is open",
        _BUFFER + "_finish",
        'max_read = int.from_bytes(after[0][0][1:], "big") if after else behind',
        "max_read = behind",
    ),
    Mutant(
        "open-passed-pulsar",
        "a plain batch moves max read over what is open",
        _BUFFER + "append",
        "moved = not transactional and max_read == end",
        "moved = not transactional",
    ),
    Mutant(
        "abort-unnoted-pulsar",
        "the id of an aborted transaction is not kept",
        _BUFFER + "_finish",
        "self.aborted.add(most, least, end)",
        "pass",
    ),
    Mutant(
        "recovered-too-late",
        "recovery does not read the log behind the snapshot",
        _BUFFER + "prepare",
        "begin = max(self._recovered, start)",
        "begin = end",
    ),
    Mutant(
        "pending-unchecked",
        "a range that is pending may be acknowledged by another transaction",
        _ACKS + "_conflicts",
        "or self.rows.between(name, low, high, cursor.position)",
        "or False",
    ),
    Mutant(
        "acknowledged-unchecked",
        "a range that is acknowledged may be acknowledged again",
        _ACKS + "_conflicts",
        "overlap_end(cursor.position, cursor.ranges, low, high) is not None",
        "False",
    ),
    Mutant(
        "acks-of-aborted",
        "acknowledgements count although their transaction aborted",
        _ACKS + "_log_end",
        "if commit:",
        "if True:",
    ),
    Mutant(
        "acks-of-committed-lost",
        "the end of a committed transaction frees what it has acknowledged",
        _ACKS + "_log_end",
        "if commit:",
        "if False:",
    ),
    Mutant(
        "log-cut-short",
        "entries of a log of acknowledgements go although they are still needed",
        "tablets.pulsar.ack_log:AckLogs.trim",
        "if highest <= position",
        "if highest",
    ),
    Mutant(
        "ends-forgotten",
        "after a restart the ends of what was decided are not sent",
        _COORDINATOR + "begin",
        'self._send_end(int.from_bytes(key[1:], "big"), row)',
        "pass",
    ),
    Mutant(
        "never-timed-out-pulsar",
        "a transaction that its client left is never ended",
        _COORDINATOR + "_abort_old",
        "if least not in self._deciding and row is not None and row.state == OPEN:",
        "if False:",
    ),
    Mutant(
        "ids-again-pulsar",
        "after a restart the same transaction ids are given again",
        _COORDINATOR + "_new",
        "self.space.put(_HIGHEST, least)",
        "pass",
    ),
    Mutant(
        "deadline-kept",
        "a decided transaction may still time out",
        _COORDINATOR + "_decide",
        'self.space.delete(_key(b"d", row.deadline_ms, least))',
        "pass",
    ),
    Mutant(
        "partition-forgotten",
        "a second registration replaces the first one's partitions",
        "coordinator.pulsar.states:applied",
        "sorted({*row.partitions, *rest[0]})",
        "sorted({*rest[0]})",
    ),
)

MUTANTS = tuple(replace(mutant, mode="pulsar") for mutant in _MUTANTS)
