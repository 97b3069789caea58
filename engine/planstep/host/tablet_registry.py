"""Makes the tablets of a host when they are first asked for, as the store's mode defines them.

    registry[id] ─▶ mode.planned: (tablet, space, send)   the catalogue, and all of mode deterministic
                 └▶ mode.others:  (tablet, space, shell)  may have memory that a turn must take back

Next: modes.py.
"""

from collections.abc import Callable
from typing import Any

from ..proto.ids import host_of, kind_of
from .delivery import Delivery
from .modes import Mode, Shell
from .tablet_space import HostSpace


class TabletRegistry(dict[int, Any]):
    """Holds a host's tablets by id; `registry[id]` makes a missing one. Invariant: `_memory` has, oldest first,
    each tablet with memory of its own as it was before the running input touched it, once per input."""

    def __init__(
        self,
        number: int,
        mode: Mode,
        space_of: Callable[[int], HostSpace],
        delivery: Delivery,
        shell_of: Callable[[int], Shell],
    ) -> None:
        """Makes it for host `number`; `shell_of` makes the shell of a tablet that has memory of its own."""
        super().__init__()
        self._number = number
        self._mode = mode
        self._space_of = space_of
        self._delivery = delivery
        self._shell_of = shell_of
        self._memory: list[tuple[Any, Any]] = []
        self._touched: dict[int, None] = {}

    def __missing__(self, tablet: int) -> Any:
        assert host_of(tablet) == self._number, f"tablet {tablet:#x} lives elsewhere"
        space, kind = self._space_of(tablet), kind_of(tablet)
        planned = self._mode.planned.get(kind)
        if planned is not None:
            self[tablet] = planned(tablet, space, self._delivery.send)
        else:
            self[tablet] = self._mode.others[kind](tablet, space, self._shell_of(tablet))
        return self[tablet]

    def touch(self, tablet: Any) -> None:
        """Saves the memory of a tablet that an input is about to touch, so that `undo` can restore it."""
        if tablet.id not in self._touched:
            self._touched[tablet.id] = None
            self._memory.append((tablet, tablet.mark()))

    def mark(self) -> int:
        """Begins another input; returns where `undo` goes back to."""
        self._touched.clear()
        return len(self._memory)

    def undo(self, mark: int) -> None:
        while len(self._memory) > mark:
            tablet, before = self._memory.pop()
            tablet.undo(before)
        self._touched.clear()

    def durable(self) -> None:
        self._memory.clear()
