"""Keeps what this process has of consumers' lanes, where several processes read one store.

    group ─ weigh, give, claim ─▶ ConsumerShare ─ Join, Leave, Given, Claim, Free ─▶ tell ─▶ owner
    group ◀─ set_lanes, changed ─ ConsumerShare ◀─ Shares, Claimed ─ arrived ◀───────────────┘

    alone      it owns the store, and no other process reads for the consumer: it has all lanes, and tells nothing
    shared     its lanes are those that it was told; a lane that it loses it gives once it has no flights
    link lost  all stays as it was; a new owner is told what this process has, and confirms it

The owner's own groups are one more party: their frames go to shares_of_links.py without a socket.
A party is weighed by its active readers. Without any it leaves, so that others read what it would not.

Next: shares_of_links.py.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from ..coordinator.claims import Range, merged, without
from ..proto.frames import Claim, Claimed, Frame, Free, Given, Join, Leave, Shares
from .claimed_ranges import ClaimedRanges

Send: TypeAlias = Callable[[Frame], None]
Key: TypeAlias = tuple[int, str]
"""A topic's id, and a consumer."""


class ShareUser(Protocol):
    """The group that reads the lanes; its lock guards its share."""

    @property
    def lane_count(self) -> int: ...

    @property
    def readers(self) -> int:
        """The readers that read; at least 1 while one has a flight."""

    def change(self, change: Callable[[], None], /) -> None:
        """Calls `change` with the lock held."""

    def set_lanes(self, lanes: Iterable[int], /) -> None:
        """Makes these the lanes in which it may begin to read; with the lock held."""

    def changed(self) -> None:
        """Notes that readers may find more than before; with the lock held."""

    def ranges(self) -> Mapping[int, tuple[Sequence[Range], Sequence[Range]]]:
        """Returns what an individual consumer's readers have in hand, and have handed back, by lane; with the lock
        held."""


class ConsumerShare:
    """The part of one consumer's lanes that this process has. Its user's lock guards it.

    Invariant: `has` are the lanes that were told, and those told before that were not given yet.
    """

    def __init__(
        self, process: "ProcessShares", key: Key, user: ShareUser, lease_ms: int, exclusive: bool
    ) -> None:
        self.key = key
        self.user = user
        self.exclusive = exclusive
        self.alone = True
        self.readers = 0
        """The number that the owner was told."""
        self.known = False
        """The owner has told the lanes since this process joined."""
        self.refused = False
        """Another process has the exclusive consumer."""
        self.has: dict[int, None] = {}
        self.claims: dict[int, ClaimedRanges] = {}
        self._process = process
        self._lease_ms = lease_ms
        self._epoch = 0
        self._joined = False  # at this owner
        self._owes = False  # an answer to the newest shares

    # what the group does --------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Returns whether an answer of the owner's is on its way that may bring lanes or ranges."""
        return bool(self.readers) and (
            not self.known or any(claims.asked for claims in self.claims.values())
        )

    def weigh(self, readers: int) -> None:
        """Joins with so many readers, or changes their number; leaves with 0, and has nothing then."""
        if self.alone or (readers == self.readers and (self._joined or not readers)):
            return
        self.readers = readers
        if readers:
            self._join()
            return
        self._forget()
        self.user.set_lanes(())
        if self._joined:
            self._joined = False
            self._process.leave(self.key)

    def give(self, lanes: Sequence[int]) -> None:
        """Gives lanes back that were taken away and have no flights now; also answers shares, with none."""
        if lanes or self._owes:
            self._owes = False
            for lane in lanes:
                self.has.pop(lane, None)
            self._tell(Given(*self.key, self._epoch, tuple(lanes)))

    def renew(self) -> None:
        """Tells the owner that this process is alive."""
        if self._joined and not self.alone:
            self._tell(Given(*self.key, self._epoch, ()))

    def claims_of(self, lane: int) -> ClaimedRanges:
        return self.claims.setdefault(lane, ClaimedRanges())

    def claim(self, lane: int, records: int) -> None:
        """Asks for ranges of so many records, and frees what has ended."""
        self.free(lane)
        if not self._tell(Claim(*self.key, lane, records)):
            self.claims_of(lane).lose()

    def free(self, lane: int) -> None:
        ended = self.claims_of(lane).to_free()
        if ended:
            self._tell(Free(*self.key, lane, tuple(ended)))

    def close(self) -> None:
        """Leaves for good: the group has neither readers nor flights."""
        self.weigh(0)
        self._process.forget(self)

    # what the owner does --------------------------------------------------------------------

    def begin(self) -> None:
        """Begins without lanes, since other processes may have them."""
        if self.alone:
            self.alone = False
            self.user.set_lanes(())

    def share(self) -> None:
        """Stops being alone: joins with all lanes if it has readers, and with the ranges in hand."""
        if not self.alone:
            return
        self.alone = False
        self.readers = self.user.readers
        if not self.readers:
            self.user.set_lanes(())
            return
        self.known = True
        self.has = dict.fromkeys(range(self.user.lane_count))
        for lane, (in_hand, back) in self.user.ranges().items():
            claims = self.claims_of(lane)
            claims.in_hand = merged(in_hand)
            claims.claimed = without(merged(back), claims.in_hand)
        self._join()

    def lose(self) -> None:
        """Notes that the link has ended: questions have no answer, and another owner counts anew."""
        self._joined = self._owes = False
        self._epoch = 0
        for claims in self.claims.values():
            claims.lose()
        self.user.changed()

    def rejoin(self) -> None:
        """Joins at another owner, with what it has."""
        if self.alone:
            self.share()
        elif self.readers and not self._joined:
            self._join()

    def hear(self, frame: Shares | Claimed) -> None:
        """Takes what the owner has told."""
        if isinstance(frame, Claimed):
            claims = self.claims.get(frame.lane)
            if claims is not None and self._joined:
                claims.take(frame.ranges)
                self.user.changed()
            return
        if self._process.is_stale(frame) or not self.readers or not self._joined:
            return
        if not frame.epoch:
            self._forget()
            self.known = self.refused = True
        elif frame.epoch >= self._epoch:
            self._epoch = frame.epoch
            self.known, self.refused = True, False
            self._owes = True
            self.has.update(dict.fromkeys(frame.lanes))
            if not frame.lanes:
                self.claims = {}
        else:
            return
        self.user.set_lanes(frame.lanes)

    def _join(self) -> None:
        key, first = self.key, not self._joined
        lanes = tuple(sorted(self.has)) if first else ()
        party = "" if self.exclusive else None
        self._joined = self._tell(Join(*key, self.readers, lanes, party, self._lease_ms))
        if first and self._joined:
            for lane, claims in sorted(self.claims.items()):
                if claims.all:
                    self._tell(Claim(*key, lane, 0, tuple(claims.bring())))

    def _forget(self) -> None:
        self.known = self.refused = self._owes = False
        self._epoch = 0
        self.has = {}
        self.claims = {}

    def _tell(self, frame: Frame) -> bool:
        return self._process.tell(frame)


class ProcessShares:
    """The shares of all groups of this process. Threads share it.

    `attach` makes another process the owner, `own` this one. Frames of the owner come to `arrived`, in their order.
    """

    def __init__(self) -> None:
        self._shares: dict[Key, ConsumerShare] = {}
        self._leaving: dict[Key, int] = {}  # frames `Leave` that the owner has not answered
        self._lock = threading.Lock()
        self._send: Send | None = None
        self._attached = False
        self._is_shared: Callable[[Key], bool] = lambda key: False
        self._run: Callable[[], None] = lambda: None

    def open(
        self, key: Key, user: ShareUser, lease_seconds: float, exclusive: bool
    ) -> ConsumerShare:
        """Opens the share of a new group, which replaces one that was closed; the group calls `begin` then."""
        lease_ms = max(1, min(round(1000 * lease_seconds), 1 << 40))
        share = ConsumerShare(self, key, user, lease_ms, exclusive)
        self._shares[key] = share
        return share

    def begin(self, share: ConsumerShare) -> None:
        """Begins with all lanes, or where others read for the consumer, with those that the owner tells."""
        if self._attached or self._is_shared(
            share.key
        ):  # asked behind `open`: else `share` finds it
            share.user.change(share.begin)

    def forget(self, share: ConsumerShare) -> None:
        with self._lock:
            if self._shares.get(share.key) is share:
                del self._shares[share.key]

    def deliver(self) -> None:
        """Takes what the owner's groups have told to its own shares. Call it without a group's lock."""
        self._run()

    # the link -------------------------------------------------------------------------------

    def attach(self, send: Send) -> None:
        """Tells another process, by a new link, what the groups of this one have. `send` does not wait, may be
        called by any thread that holds a group's lock, and keeps the order."""
        self._begin(send, attached=True)

    def own(self, send: Send, is_shared: Callable[[Key], bool], run: Callable[[], None]) -> None:
        """Makes this process the owner: `send` takes its groups' frames, and `run` answers them."""
        self._is_shared, self._run = is_shared, run
        self._begin(send, attached=False)

    def _begin(self, send: Send, attached: bool) -> None:
        self.lost()
        self._attached = attached
        if attached:
            self._is_shared, self._run = (lambda key: True), (lambda: None)
        self._send = send
        for share in list(self._shares.values()):
            if attached or not share.alone:
                share.user.change(share.rejoin)

    def lost(self) -> None:
        """Notes that the link has ended. What was told holds on; the groups go on with what they have."""
        self._send = None
        with self._lock:
            self._leaving.clear()
        for share in list(self._shares.values()):
            if not share.alone:
                share.user.change(share.lose)

    def arrived(self, frame: Shares | Claimed) -> None:
        """Takes a frame of the owner's. The caller holds no lock."""
        share = self._shares.get((frame.topic, frame.consumer))
        if share is not None:
            share.user.change(lambda: share.hear(frame))
        elif isinstance(frame, Shares):
            self.is_stale(frame)

    def share(self, key: Key) -> None:
        """Stops being alone with a consumer: another process reads for it."""
        share = self._shares.get(key)
        if share is not None:
            share.user.change(share.share)

    def tell(self, frame: Frame) -> bool:
        """Sends a frame; returns False while there is no owner."""
        send = self._send
        if send is None:
            return False
        send(frame)
        return True

    def leave(self, key: Key) -> None:
        """Sends `Leave`. What the owner tells before its answer is of the time before."""
        if self._send is None:
            return
        with self._lock:
            self._leaving[key] = self._leaving.get(key, 0) + 1
        self.tell(Leave(*key))

    def is_stale(self, frame: Shares) -> bool:
        """Returns whether shares are from before this process left, or answer that."""
        key = frame.topic, frame.consumer
        with self._lock:
            waits = self._leaving.get(key, 0)
            if waits and not frame.epoch:
                self._leaving[key] = waits - 1
            if not self._leaving.get(key, 1):
                del self._leaving[key]
        return bool(waits)
