"""Makes the tablets of a host when they are first asked for, as the store's mode defines them.

    tablets[id] ─▶ mode.planned: (tablet, space, send)   the catalogue, and all of mode deterministic
                └▶ mode.others:  (tablet, space, shell)  may have memory that a turn must take back

Next: modes.py.
"""

from collections.abc import Callable
from typing import Any

from ..proto.ids import host_of, kind_of
from ..proto.mode_settings import ModeSettings
from ..store import Store
from .delivery import Delivery
from .modes import Mode, Shell
from .tablet_space import HostSpace


class _Tablets(dict[int, Any]):
    """Tablets by id; `tablets[id]` makes a missing one."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, tablet: int) -> Any:
        instance = self[tablet] = self._make(tablet)
        return instance


class TabletRegistry:
    """Holds a host's tablets. Invariant: `_memory` has, oldest first, each tablet with memory of its own as it
    was before the running input touched it, once per input."""

    def __init__(
        self,
        number: int,
        hosts: int,
        mode: Mode,
        store: Store,
        space_of: Callable[[int], HostSpace],
        delivery: Delivery,
        *,
        settings: ModeSettings,
        rtt_ms: float,
        clock: Callable[[], int],
    ) -> None:
        self._mode = mode
        self._number = number
        self._hosts = hosts
        self._store = store
        self._space_of = space_of
        self._delivery = delivery
        self._settings = settings.with_rtt(rtt_ms)
        self._clock = clock
        self.tablets = _Tablets(self._make)
        self._memory: list[tuple[Any, Any]] = []
        self._touched: dict[int, None] = {}

    def _make(self, tablet: int) -> Any:
        assert host_of(tablet) == self._number, f"tablet {tablet:#x} lives elsewhere"
        space, kind = self._space_of(tablet), kind_of(tablet)
        planned = self._mode.planned.get(kind)
        if planned is not None:
            return planned(tablet, space, self._delivery.send)
        epoch = self._store.generation
        shell = Shell(tablet, self._delivery, self._settings, epoch, self._hosts, self._clock)
        return self._mode.others[kind](tablet, space, shell)

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
