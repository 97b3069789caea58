"""Carries messages between hosts in durable queues: the cores see each message once, first in, first out.

    turn of the sender ── message n is part of the turn ──▶ frame ──▶ turn of the receiver
                       ◀── acknowledged: the receiver's turn with n is durable ──┘

A message is numbered per link and kept under a key of the sending host until it is acknowledged; the
receiver keeps the last number with the turn that took it. Frames may be lost, repeated, delayed and
reordered at will. Only bytes travel.

Keys of a host h:   O<target 1><number 8> → message bytes    N<target 1> → last number given
                   I<source 1> → last number taken

Datagrams (messages.DATAGRAMS) travel in frames too, without a number: the proxy copes with their loss.
Next: host.py.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from ..errors import Corruption
from ..proto.records_pb2 import LinkFrame
from ..proto.shell import Keys

_FRAME_BYTES = 4 << 20
_FRAME_MESSAGES = 1000


class Link:
    """Holds one host's end of the two queues with one other host.

    Invariants: `queue` holds exactly the numbers that are stored and not known to be taken, in order and
    without a gap (a frame states only its first); no frame holds a number above `durable`. Memory follows
    the store in `committed`, when the turn is durable.
    """

    def __init__(
        self, source: int, target: int, queue: list[tuple[int, bytes]], last: int, received: int
    ) -> None:
        self.source = source
        self.target = target
        self.queue: deque[tuple[int, bytes]] = deque(queue)
        self.durable = last
        self.next = self.durable + 1
        self.sent = 0
        self.received = received  # last number received from the other side, durably
        self.acknowledged = 0
        self.dropping = 0  # the running turn deletes acknowledged messages up to this number
        self.staged: list[tuple[int, bytes]] = []
        self.staged_received = received
        self.owes = False  # an acknowledgement is due
        self.bytes_sent = 0

    # in the turn ---------------------------------------------------------------------------

    def push(self, keys: Keys, data: bytes) -> None:
        number = self.next
        self.next += 1
        self.staged.append((number, data))
        keys.put(_out(self.target, number), data)
        keys.put(b"N" + bytes([self.target]), number)

    def take(self, keys: Keys, frame: LinkFrame) -> list[bytes]:
        """Returns the frame's new messages, and notes their numbers in the turn that delivers them."""
        self.owes = self.owes or bool(frame.messages)
        first = self.staged_received + 1 - frame.first
        if first < 0 or first >= len(frame.messages):
            return []  # a gap, and the sender repeats from the first unacknowledged; or nothing new
        new = list(frame.messages[first:])
        self.staged_received += len(new)
        keys.put(b"I" + bytes([self.target]), self.staged_received)
        return new

    def mark(self) -> tuple[int, int]:
        return len(self.staged), self.staged_received

    def undo(self, mark: tuple[int, int]) -> None:
        del self.staged[mark[0] :]
        self.next = self.durable + 1 + len(self.staged)
        self.staged_received = mark[1]
        self.dropping = 0

    def drop_acknowledged(self, keys: Keys) -> None:
        """Deletes messages that the other side has, in a turn that writes anyway."""
        for number, _ in self.queue:
            if number > self.acknowledged:
                break
            keys.delete(_out(self.target, number))
            self.dropping = number

    # after the turn ------------------------------------------------------------------------

    def committed(self) -> None:
        while self.queue and self.queue[0][0] <= self.dropping:
            self.queue.popleft()
        self.queue.extend(self.staged)
        if self.staged:
            self.durable = self.staged[-1][0]
        self.staged.clear()
        self.received = self.staged_received
        if self.source == self.target:  # both ends are here: no acknowledgement has to travel
            self.acknowledged = self.received
            self.owes = False

    def heard(self, frame: LinkFrame) -> None:
        self.acknowledged = max(self.acknowledged, min(frame.acknowledged, self.durable))

    def frames(self, datagrams: list[bytes], again: bool) -> list[bytes]:
        """Returns frames to send: new messages (with `again` all not acknowledged), and any acknowledgement."""
        if again:
            self.sent = self.acknowledged
        last = max(self.sent, self.acknowledged)
        todo: list[tuple[int, bytes]] = []
        if self.queue and self.queue[-1][0] > last:
            todo = [item for item in self.queue if item[0] > last]
        result: list[bytes] = []
        while todo or datagrams or self.owes:
            frame = LinkFrame(source=self.source, target=self.target, acknowledged=self.received)
            size = 0
            if todo:
                frame.first = todo[0][0]
            while todo and len(frame.messages) < _FRAME_MESSAGES and size < _FRAME_BYTES:
                number, data = todo.pop(0)
                frame.messages.append(data)
                size += len(data)
                self.sent = number
            while datagrams and size < _FRAME_BYTES:
                data = datagrams.pop(0)
                frame.datagrams.append(data)
                size += len(data)
            self.owes = False
            data = frame.SerializeToString()
            self.bytes_sent += len(data)
            result.append(data)
        return result


def _out(target: int, number: int) -> bytes:
    return b"O" + bytes([target]) + number.to_bytes(8, "big")


def open_link(
    source: int, target: int, rows: list[tuple[bytes, bytes]], last: int, received: int
) -> Link:
    """Rebuilds a link's end from the host's keys; `rows` is the scan of O<target>. Raises Corruption."""
    queue = [(int.from_bytes(key[-8:], "big"), data) for key, data in rows]
    if [number for number, _ in queue] != list(range(last + 1 - len(queue), last + 1)):
        raise Corruption(f"host {source}: its stored messages to host {target} have a gap")
    return Link(source, target, queue, last, received)


def check_ends(ends: Sequence[Mapping[int, Link]]) -> None:
    """Compares the two ends of each link between hosts at rest; `ends[a][b]` is a's end of its link with b.
    Raises Corruption where one host has taken or forgotten a message that the other does not know of."""
    for host, links in enumerate(ends):
        for other, here in links.items():
            there = ends[other].get(host)
            if there is None or there is here:
                continue
            first = here.queue[0][0] if here.queue else here.durable + 1
            if there.received > here.durable:
                lost = host
                knows = f"host {other} received message {there.received} from it, which it no longer has"
            elif first > there.received + 1:
                lost = other
                knows = f"it acknowledged message {first - 1} of host {host} and no longer knows it"
            else:
                continue
            hint = "restore all hosts from one backup"
            raise Corruption(f"host {lost} has lost turns: {knows}; {hint}")
