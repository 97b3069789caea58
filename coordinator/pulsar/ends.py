"""Sends the end of a transaction to every partition and subscription until each has acknowledged it.

    decided ─▶ EndTxnOn… to each participant ──Ended──▶ one less ──none left──▶ over
                 ▲──── after participant_timeout_ms, looked for every end_retry_ms

Ends leave after the decision is durable. At most `participant_requests` are on their way; the rest waits in the
order of the decisions. A dropped topic or subscription acknowledges, so every end is over at some time; any other
error counts as no answer.

Unlike ../markers.py it counts what is on its way, and its memory costs the same to mark whatever is on the way.

Next: transactions.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from ...proto.memory import Memory
from ...proto.pulsar.messages import Ended, EndTxnOnPartition, EndTxnOnSubscription, Shell
from ...proto.shell import Wake
from .states import COMMITTING, Transaction

ENDS = "ends"
Participant: TypeAlias = "tuple[int, str | None]"
OVER = ("", "TopicNotFound")
"""Errors after which a participant needs no end any more: none, or it is dropped."""
_ON_WAY, _ARMED = "on its way", "armed"


class Ending(NamedTuple):
    """An end that not every participant has acknowledged; `sent_ms` and `cause` are of the last sending."""

    commit: bool
    low_water_mark: int
    sent_ms: int
    cause: Any
    left: tuple[Participant, ...]
    """The participants that have it to acknowledge, the first `sent` of them are asked."""
    sent: int


class Ends:
    """Tells participants how transactions of one coordinator ended; `over(least)` is called once all know.

    Invariant: the ends on their way are those that `ending` counts as sent, at most `participant_requests`.
    """

    __slots__ = ("_counts", "_memory", "_number", "_over", "_shell", "_tablet", "ending", "waiting")

    def __init__(
        self, tablet: int, number: int, shell: Shell, memory: Memory, over: Callable[[int], None]
    ) -> None:
        self._tablet = tablet
        self._number = number
        self._shell = shell
        self._memory = memory
        self._over = over
        self.ending: dict[int, Ending] = {}
        """By number of the transaction."""
        self.waiting: dict[int, None] = {}
        """The transactions with participants that are not asked yet, in order."""
        self._counts: dict[str, int] = {_ON_WAY: 0, _ARMED: 0}

    @property
    def on_way(self) -> int:
        return self._counts[_ON_WAY]

    def begin(self, least: int, row: Transaction, low_water_mark: int) -> None:
        """Sends a decided transaction's end to its participants."""
        shell = self._shell
        left = row.participants
        commit = row.state == COMMITTING
        ending = Ending(commit, low_water_mark, shell.now_ms, shell.cause, left, 0)
        self._memory.set(self.ending, least, ending)
        if left:
            self._memory.set(self.waiting, least, None)
            self._send()
        else:
            self._over(least)
        self._arm()

    def acknowledged(self, message: Ended) -> None:
        ending = self.ending.get(message.least)
        participant = message.tablet, message.subscription
        if ending is None or participant not in ending.left:
            return  # a repeat
        if message.error not in OVER:
            return  # it is asked again
        at = ending.left.index(participant)
        sent = ending.sent - (at < ending.sent)
        left = ending.left[:at] + ending.left[at + 1 :]
        self._memory.set(self.ending, message.least, ending._replace(left=left, sent=sent))
        self._count(_ON_WAY, self.on_way - (ending.sent - sent))
        if sent == len(left):
            self._memory.drop(self.waiting, message.least)
        if not left:
            self._over(message.least)
        self._send()

    def ended(self, least: int) -> None:
        """Forgets a transaction whose end the log has."""
        self._memory.drop(self.ending, least)

    def wake(self) -> None:
        """Sends again what was not acknowledged within the time, and tells again what is over but not logged."""
        shell = self._shell
        running, timeout_ms = shell.cause, shell.settings.participant_timeout_ms
        for least, ending in list(self.ending.items()):
            if least not in self.ending:
                continue  # ended meanwhile, with a batch of the log
            if shell.now_ms - timeout_ms < ending.sent_ms <= shell.now_ms:
                continue
            self._memory.set(self.ending, least, ending._replace(sent_ms=shell.now_ms))
            shell.cause = ending.cause
            for participant in ending.left[: ending.sent]:
                self._tell(least, ending, participant)
            if not ending.left:
                self._over(least)  # the log refused it
        shell.cause = running
        self._send()
        self._count(_ARMED, 0)
        self._arm()

    def _send(self) -> None:
        """Asks participants that wait for their turn, while fewer are asked than allowed."""
        most = self._shell.settings.participant_requests
        running = self._shell.cause
        while self.waiting and self.on_way < most:
            least = next(iter(self.waiting))
            ending = self.ending[least]
            now = min(len(ending.left), ending.sent + most - self.on_way)
            self._shell.cause = ending.cause
            for participant in ending.left[ending.sent : now]:
                self._tell(least, ending, participant)
            self._count(_ON_WAY, self.on_way + now - ending.sent)
            sent = ending._replace(sent=now, sent_ms=self._shell.now_ms)
            self._memory.set(self.ending, least, sent)
            if now == len(ending.left):
                self._memory.drop(self.waiting, least)
        self._shell.cause = running

    def _tell(self, least: int, ending: Ending, participant: Participant) -> None:
        tablet, subscription = participant
        who = self._tablet, self._number, least
        message: EndTxnOnPartition | EndTxnOnSubscription
        if subscription is None:
            message = EndTxnOnPartition(*who, ending.commit, ending.low_water_mark)
        else:
            how = ending.commit, ending.low_water_mark
            message = EndTxnOnSubscription(*who, *how, subscription)
        self._shell.after_durable(tablet, message)

    def _arm(self) -> None:
        if self.ending and not self._counts[_ARMED]:
            self._count(_ARMED, 1)
            self._shell.later(self._shell.settings.end_retry_ms, Wake(ENDS))

    def _count(self, what: str, value: int) -> None:
        self._memory.set(self._counts, what, value)
