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
_SNAPSHOTS = "tablets.pulsar.snapshots:"
_PARTS = """\
    if aborted.count(after) > capacity:
        last = aborted.nth_marker(after, capacity)
        data = aborted.pack(after, last)
        number += 1
        self._put(PART + number.to_bytes(4, "big"), (after, data), data)
        self._written = number, last
        return
    data = aborted.pack(after)
    self._put(END, (after, data, max_read), data)
"""
_COUNTED = """\
    if not number:
        parts = max(0, aborted.count() - 1) // capacity
        for key, _ in self._space.scan(PART + (parts + 1).to_bytes(4, "big"), END):
            self._space.delete(key)
"""
_BEGUN = """if self._written is None:
            for key, _ in self._space.scan(PART, _behind(PART)):
                self._space.delete(key)
"""
_WHOLE = "all(unconsumed(cursor.position, cursor.ranges, *one) == [one] for one in ranges)"

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
        "if ended or (name, most, least) in self._ending:",
        "if False:",
        source="apache/pulsar#19200: a pending acknowledgement outlives its transaction",
    ),
    Mutant(
        "open-again",
        "what is over is kept as if it were not",
        _COORDINATOR + "_over",
        "self.space.delete(_key(least))",
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
    Mutant(
        "replay-never-ends",
        "recovery of aborted ids does not see that it is at the log's end",
        _BUFFER + "prepare",
        "if self._recovered < end:\n        self.shell.later(0, Wake(RECOVER))",
        "if self._recovered <= end:",
        source="apache/pulsar#26368: a replay that does not end",
    ),
    Mutant(
        "call-never-ends",
        "a commit whose outcome its client cannot learn never ends",
        _CLIENT + "_over",
        "self._end_calls(_Call.COMMIT, error, None if error else self._operations.written, detail)",
        "error or self._end_calls(_Call.COMMIT, error, self._operations.written, detail)",
        source="apache/pulsar#16248, #18943: a call that never ends",
    ),
    Mutant(
        "parts-counted",
        "the first part says how many there are",
        _SNAPSHOTS + "Snapshots.go_on",
        _PARTS,
        _COUNTED + _PARTS.replace("(after, data", "(-1, data"),
        source="apache/pulsar#16042: a way to write parts that it rejected",
    ),
    Mutant(
        "parts-begun",
        "a mark begins a snapshot in parts, and what was written before is gone",
        _SNAPSHOTS + "Snapshots.take",
        "self._written = self._written or (0, -1)",
        _BEGUN + "        self._written = self._written or (0, -1)",
        source="apache/pulsar#16042: the other way that it rejected",
    ),
    # hazards that were read in Pulsar's code, without an issue
    Mutant(
        "late-send-taken",
        "a message that comes behind its transaction's end joins it again; its abort hides what was committed",
        _BUFFER + "append",
        "if self.has_ended(most, least):",
        "if least <= self.low_water_mark(most):",
        source="apache/pulsar, TopicTransactionBuffer: a late send, until the mark passes it",
    ),
    Mutant(
        "individual-not-applied",
        "a commit of individual acknowledgements is answered, and not applied beside a cumulative one",
        _ACKS + "_log_end",
        "if commit:",
        "if commit and self.rows.cumulative(name) is None:",
        source="apache/pulsar, PendingAckHandleImpl.internalCommitTxn: the first kind that it finds",
    ),
    Mutant(
        "snapshot-stays-at-work",
        "who has written a snapshot stays at work, and writes none any more",
        _BUFFER + "_take",
        "self._moves = 0",
        "self._moves = -(1 << 40)",
        source="apache/pulsar, PersistentWorker: its state stays Operating",
    ),
    Mutant(
        "ids-twice",
        "markers behind the snapshot's position are added again, although it has their ids",
        "tablets.pulsar.aborted:Aborted.add",
        "if marker <= self.last:",
        "if False:",
        source="apache/pulsar, SnapshotSegmentAbortedTxnProcessorImpl: a tail with ids twice",
    ),
    Mutant(
        "request-dropped-whole",
        "replay drops a whole request of which a part was acknowledged since",
        "tablets.pulsar.ack_log:replayed",
        "for begin, end in unconsumed(cursor.position, cursor.ranges, low, high):",
        f"for begin, end in [(low, high)] * {_WHOLE}:",
        source="apache/pulsar, PendingAckHandleImpl.handleIndividualAckRecover",
    ),
    Mutant(
        "poison-logged",
        "a record that cannot be packed is in the log, and nothing behind it can be read",
        "proto.batched_log:BatchedLog.append",
        'done("INVALID_REQUEST", None)\n        return',
        "data = repr(record).encode()",
        source="apache/pulsar, TxnLogBufferedWriter.doFlush: one record blocks its log for ever",
    ),
    # our own
    Mutant(
        "gap-unseen",
        "recovery does not see a gap between parts",
        _SNAPSHOTS + "load",
        "if after > aborted.last:",
        "if False:",
    ),
    Mutant(
        "part-frees-all",
        "an acknowledgement of a part of what is pending frees all before it",
        "tablets.pulsar.pending_rows:PendingRows.clear",
        "if low < begin:",
        "if False:",
    ),
    Mutant(
        "marker-shown",
        "readers are shown markers",
        "runtime.pulsar.views:PulsarViews.filtered",
        "if row[3] <= TRANSACTIONAL",
        "if True",
    ),
    Mutant(
        "position-falls",
        "an acknowledgement that comes late moves the position back",
        _ACKS + "_plain",
        "if message.position > position:\n            "
        "self._store(name, cursor, raised_to(cursor, message.position))",
        "self._store(name, cursor, cursor._replace(position=message.position))",
    ),
    Mutant(
        "max-read-falls",
        "a trim moves max read back",
        "tablets.pulsar.partition:Partition._trim",
        "Bounds(start, end, max_read)",
        "Bounds(start, end, offset)",
    ),
    Mutant(
        "copy-not-advanced",
        "a reader's copy of the aborted ids is read once",
        "runtime.pulsar.aborted_ids:AbortedIds._upto",
        "if read_to < bounds.end:",
        "if not read_to:",
    ),
    Mutant(
        "next-batch-dropped",
        "a partition takes the next batch for a repeat",
        "tablets.pulsar.partition:Partition._send",
        "message.sequence <= last",
        "message.sequence <= last + 1",
    ),
    Mutant(
        "never-told",
        "who has waited for a transaction's end is not told",
        _COORDINATOR + "_over",
        'self._tell_waiters(least, "")',
        "pass",
    ),
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
        "ids-begin-again",
        "ids begin at 0 again once nothing is open",
        _COORDINATOR + "_new",
        "least = counts[_NEXT]",
        "least = counts[_NEXT] if counts[_ACTIVE] else 0",
    ),
    Mutant(
        "deadline-kept",
        "a decided transaction may still time out",
        _COORDINATOR + "_decide",
        "self.space.delete(_due_key(row.deadline_ms, least))",
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
