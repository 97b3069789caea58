"""The client of mode "pulsar": runs the application's side of Pulsar's protocol.

    begin, send, acknowledge, flush, commit, abort ─▶ transaction.py   many may be open at a time
    plain                                          ─▶ plain_writes.py  writes outside of transactions
    ask                                            ─▶ ../requests.py   one request: a plain Ack, Seek, TrimTo
                                                          │
                            shell ◀── out, timers, ended        handle, wake ◀── shell

It runs outside the hosts' turns: the shell calls it under a lock, takes what it has to send, and feeds back
answers and timers, as with every exchange (../requests.py). It has no clock and no thread.
It follows Java's client (TransactionImpl, TransactionMetaStoreHandler, ProducerImpl); where it does not, the file
says so. Requests of one transaction with k partitions and s subscriptions: 2 + 2k + 2s.

Next: states.py, transaction.py; the other side is coordinator/pulsar/ and tablets/pulsar/.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...proto.ids import tablet_text
from ...proto.pulsar.messages import NO_TXN, Ack, TxnID
from ...proto.pulsar.settings import PulsarSettings, kind_of_error
from ..requests import Asking, Ended, Exchange
from .coordinators import Coordinators
from .plain_writes import NOT_NUMBERED, TIMED_OUT, Batches, Numbers, PlainWrites
from .producers import Producers
from .states import State
from .transaction import UNDETERMINED, Transaction

__all__ = ["TIMED_OUT", "UNDETERMINED", "Client", "Ended"]


class Client(Exchange[PulsarSettings]):
    """Runs a process's transactions, producers and single requests.

    Every call ends once, in `ended`, with the name of a Pulsar error or UNDETERMINED, "" for none. `tx` is the
    engine's id of a transaction, from `begin` to `drop`; calling with any other is a bug.
    """

    def __init__(
        self,
        address: int,
        settings: PulsarSettings,
        coordinators: Sequence[int],
        tablet_words: Callable[[int], str] = tablet_text,
    ) -> None:
        """`coordinators`: their tablets, by number. `tablet_words` names a tablet in the details of errors."""
        super().__init__(
            address,
            settings,
            lambda error: kind_of_error(error).asked_again,
            tablet_words,
            settings.operation_timeout_ms,
        )
        self._coordinators = Coordinators(self, coordinators)
        self._producers = Producers(self)
        self._plain = PlainWrites(self, self._producers)
        self._transactions: dict[bytes, Transaction] = {}

    # transactions ------------------------------------------------------------------------------

    def begin(self, tx: bytes, timeout_ms: int | None = None) -> None:
        """Opens a transaction without waiting for its id: operations may follow at once.

        An answer that is lost leaves another one open at the coordinator, which aborts it after its time-out.
        `timeout_ms` None: the setting transaction_timeout_ms.
        """
        assert tx not in self._transactions, "a transaction begins once"
        timeout_ms = self.settings.transaction_timeout_ms if timeout_ms is None else timeout_ms
        self._transactions[tx] = Transaction(
            self, self._coordinators, self._producers, tx, timeout_ms
        )

    def send(
        self, tx: bytes, producer: str, batches: Batches, numbers: Numbers = NOT_NUMBERED
    ) -> str:
        """Queues batches without waiting; `flush` and `commit` show their errors.

        Returns "", or InvalidTxnStatus once the transaction is ending or has ended.
        """
        return self._transactions[tx].send(producer, batches, numbers)

    def acknowledge(
        self,
        tx: bytes,
        tablet: int,
        subscription: str,
        ranges: tuple[tuple[int, int], ...] = (),
        position: int | None = None,
    ) -> str:
        """Acknowledges ranges [begin, end), or all records before `position`. Waits and returns as `send`."""
        return self._transactions[tx].acknowledge(tablet, subscription, ranges, position)

    def flush(self, call: bytes, tx: bytes) -> None:
        """Waits for all operations so far; ends with {tablet: (first offset, end offset)}.

        The error is that of the first operation that failed.
        """
        self._transactions[tx].flush(call)

    def commit(self, call: bytes, tx: bytes) -> None:
        """Commits behind all operations; ends with {tablet: (first offset, end offset)} once it is done everywhere.

        TransactionHasOperationFailed: it is aborted instead; the end's value is the first failure's name.
        UNDETERMINED: it may be committed. The same again, under another `call`, asks again unless the coordinator
        has answered that it does not know the transaction.
        After the end, or the client's time-out, InvalidTxnStatus; its value is the error that ended it, or None.
        """
        self._transactions[tx].commit(call)

    def abort(self, call: bytes, tx: bytes) -> None:
        """Aborts, behind what is on the way. Timeout: not answered; the same again asks again.

        After the end, or the client's time-out, InvalidTxnStatus.
        """
        self._transactions[tx].abort(call)

    def id(self, tx: bytes) -> TxnID:
        """Returns Pulsar's id of a transaction, NO_TXN until it is known."""
        return self._transactions[tx].id

    def state(self, tx: bytes) -> State:
        return self._transactions[tx].state

    def outstanding(self, tx: bytes) -> int:
        """Returns the bytes of a transaction's batches that are not answered yet."""
        return self._transactions[tx].outstanding

    def failure(self, tx: bytes) -> tuple[str, str] | None:
        """Returns (error, detail) if the transaction failed, or its outcome is not known, otherwise None."""
        return self._transactions[tx].failed

    def was_aborted(self, tx: bytes) -> None:
        """Ends a transaction that its coordinator has aborted for an operator; no message is sent."""
        self._transactions[tx].was_aborted()

    def drop(self, tx: bytes) -> None:
        """Forgets a transaction that has ended, or whose owner is gone: that one is open until its time-out."""
        transaction = self._transactions.pop(tx, None)
        if transaction is not None:
            transaction.drop()

    # outside of transactions -------------------------------------------------------------------

    def plain(
        self,
        call: bytes,
        producer: str,
        batches: Batches,
        numbers: Numbers = NOT_NUMBERED,
        tx: bytes | None = None,
    ) -> None:
        """Writes outside of a transaction; ends with {tablet: (first offset, end offset)} of what was written.

        The error is the first of a batch that was refused, `detail` has all. Timeout: it may be written. `tx` is
        for counters.
        """
        self._plain.write(call, producer, batches, numbers, tx)

    def go_on_after(self, producer: str, tablet: int, sequence: int) -> None:
        """Numbers a producer's next batches for a partition from behind `sequence` on.

        Needed before the first one if an earlier process used the name: with deduplication a partition drops
        lower numbers.
        """
        self._producers.go_on_after(producer, tablet, sequence)

    def plain_acknowledge(
        self,
        call: bytes,
        tablet: int,
        subscription: str,
        ranges: tuple[tuple[int, int], ...] = (),
        position: int | None = None,
    ) -> None:
        self.ask(
            call,
            tablet,
            lambda address, n: Ack(address, n, *NO_TXN, subscription, ranges, position),
        )

    def ask(self, call: bytes, target: int, make: Callable[[int, int], Any]) -> None:
        """Sends one request, `make(address, number)`, and repeats it for operation_timeout_ms; then Timeout."""

        def expire(_: bytes) -> None:
            asking.cancel()
            self.end(call, TIMED_OUT)

        self.open(call, expire)
        asking = Asking(self, target, make, partial(self.end, call), first_counts=True)
