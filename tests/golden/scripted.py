"""Shares tools between scripted conversations: reads lines, compares answers, holds messages back."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import planstep
from planstep.errors import PlanstepError
from planstep.host.inputs import Deliver
from planstep.proto.messages import decode
from planstep.proto.records_pb2 import LinkFrame
from planstep.runtime.network import Network

WRITES = os.environ.get("PLANSTEP_GOLDEN") == "write"


class HeldNetwork(Network):
    """A network that holds frames back, as `holds(host, frame)` decides, until they are let go."""

    def __init__(
        self, deliver: Callable[[int, bytes], None], holds: Callable[[int, LinkFrame], bool]
    ) -> None:
        super().__init__()
        self.deliver = deliver
        self.holds = holds
        self.held: list[tuple[int, int, bytes]] = []

    def send(self, source: int, target: int, data: bytes) -> None:
        if self.holds(target, LinkFrame.FromString(data)):
            self.held.append((source, target, data))
        else:
            super().send(source, target, data)

    def let_go(self) -> None:
        held, self.held = self.held, []
        for frame in held:
            super().send(*frame)


class HeldMessages:
    """Holds messages between tablets back by their kind, on the network and between turns of one host."""

    def __init__(self, runtime: Any) -> None:
        self._kinds: list[str] = []  # kinds of messages
        self.holds: Callable[[int, Any], bool] = lambda target, message: False
        self._runtime = runtime
        self._put_off: list[tuple[Any, Deliver]] = []
        self._network = HeldNetwork(runtime.turns.network.deliver, self._holds_one_of)
        self._through = runtime.turns._schedule
        runtime.turns.network = self._network
        runtime.turns._schedule = self._later

    def _is_held(self, target: int, message: Any) -> bool:
        held = self.holds(target, message)
        if held:
            self._kinds.append(type(message).__name__)
        return held

    def _holds_one_of(self, host: int, frame: LinkFrame) -> bool:
        messages = [decode(data) for data in (*frame.messages, *frame.datagrams)]
        return any([self._is_held(target, message) for target, message, _ in messages])

    def _later(self, node: Any, delay_ms: float, item: Deliver) -> None:
        if self._is_held(item.target, item.message):
            self._put_off.append((node, item))
        else:
            self._through(node, delay_ms, item)

    def let_go(self) -> list[str]:
        """Lets all held messages go; returns their kinds."""
        self.holds = lambda target, message: False
        self._network.let_go()
        put_off, self._put_off = self._put_off, []
        for node, item in put_off:
            self._runtime.turns._enqueue(node, node.host, item)
        kinds, self._kinds = self._kinds, []
        return kinds


def spoken_lines(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Yields each line without its answer, and whether it needs one; comments and empty lines need none."""
    for line in lines:
        text = line.split(" -> ")[0].rstrip()
        yield text, bool(text) and not text.startswith("#")


def answer_line(line: str, answer: str, width: int = 24) -> str:
    return f"{line:{width}} -> {answer}"


def compare(path: Path, lines: list[str], expected: list[str] | None = None) -> None:
    """Compares lines with a file; with PLANSTEP_GOLDEN=write writes the file instead."""
    if expected is None:
        expected = path.read_text().splitlines() if path.exists() else []
    if WRITES:
        path.write_text("\n".join(lines) + "\n")
    else:
        assert lines == expected


def refusal(error: PlanstepError) -> str:
    """Describes an error in few words: the object of a conflict, or the protocol's name."""
    if isinstance(error, planstep.Conflict):
        what = error.consumer or error.producer or error.key or "range"
        return f"CONFLICT on {error.name} {what}"
    if isinstance(error, (planstep.KafkaError, planstep.PulsarError)):
        return error.name
    return type(error).__name__
