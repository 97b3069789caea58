"""How each protocol commits, drawn by hand: who writes what where, and when a reader may see it.

    worker ── coordinator ── partition ── reader      time runs down; ● is on the disk before anything goes on

Left out: retries, aborts, time-outs; docs/kafka.md and ARCHITECTURE.md have them.

Next: verdict.py.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .drawing import GRID, INK, MUTED, Drawing, Sheet, look, title

_WORKER, _COORDINATOR, _PARTITION, _READER = 0, 1, 2, 3
_X = (0.09, 0.40, 0.68, 0.93)
_ROW_IN = 0.33


class Step(NamedTuple):
    """A message from lane to lane; or, of one lane only, a durable change. `text`: what."""

    text: str
    lane: int
    to: int | None = None


class Protocol(NamedTuple):
    """`lanes`: names; "" where it has no such part. `seen`: number of the step at which readers may see it."""

    system: str
    idea: str
    lanes: tuple[str, str, str, str]
    steps: Sequence[Step]
    seen: int
    hidden: str
    visible: str


_LANES = ("worker", "coordinator", "partition", "reader")
PROTOCOLS = (
    Protocol(
        "deterministic",
        "agree on a place, then publish",
        _LANES,
        (
            Step("records", _WORKER, _PARTITION),
            Step("on the side, hidden", _PARTITION),
            Step("commit", _WORKER, _COORDINATOR),
            Step("its place in the plan", _COORDINATOR),
            Step("plan", _COORDINATOR, _PARTITION),
            Step("published", _PARTITION),
            Step("committed", _PARTITION, _WORKER),
        ),
        5,
        "nothing",
        "all at once",
    ),
    Protocol(
        "kafka",
        "write in place, decide, mark",
        _LANES,
        (
            Step("records", _WORKER, _PARTITION),
            Step("who takes part", _COORDINATOR),
            Step("in the log", _PARTITION),
            Step("commit", _WORKER, _COORDINATOR),
            Step("the decision", _COORDINATOR),
            Step("committed", _COORDINATOR, _WORKER),
            Step("marker", _COORDINATOR, _PARTITION),
            Step("commit marker", _PARTITION),
        ),
        7,
        "stop here",
        "past the marker",
    ),
    Protocol(
        "sqlite",
        "one file, one writer",
        ("worker", "", "file", "reader"),
        (
            Step("wait for the lock", _WORKER, _PARTITION),
            Step("COMMIT: all of it", _WORKER, _PARTITION),
            Step("one sync", _PARTITION),
            Step("committed", _PARTITION, _WORKER),
        ),
        2,
        "nothing",
        "all at once",
    ),
)


def protocols(systems: Sequence[str]) -> Drawing:
    """Of those that one of `systems` follows."""
    shown = [
        protocol
        for protocol in PROTOCOLS
        if any(
            name == protocol.system or name.startswith(f"{protocol.system}-") for name in systems
        )
    ] or list(PROTOCOLS)
    said = "; ".join(
        f"{look(p.system).name}: " + ", ".join(_words(p, step) for step in p.steps) for p in shown
    )
    return Drawing(
        "protocols",
        f"How each system commits, step by step, from top to bottom. {said}.",
        "Time runs down. ● is durable before anything goes on. Right: pale while a reader sees nothing of it, "
        "full once it may; in the Kafka-style mode only when whoever was open before in that partition has "
        "ended, too. In placement shared all of a host's discs up to an answer go to disk with one sync; in "
        "placement separate each waits for the one before.",
        lambda sheet: _paint(sheet, shown),
    )


def _words(protocol: Protocol, step: Step) -> str:
    lanes = protocol.lanes
    if step.to is None:
        return f"{lanes[step.lane]} makes durable: {step.text}"
    return f"{lanes[step.lane]} to {lanes[step.to]}: {step.text}"


def _paint(sheet: Sheet, shown: Sequence[Protocol]) -> None:
    rows = max(len(protocol.steps) for protocol in shown) + 0.6
    axes = sheet.panels(
        len(shown), height=(rows + 1.3) * _ROW_IN, left=0.1, right=0.1, bottom=0.08, top=0.36
    )
    for panel, protocol in zip(axes, shown, strict=True):
        _protocol(panel, protocol, rows)


def _protocol(axes: Any, protocol: Protocol, rows: float) -> None:
    color = look(protocol.system).color
    title(axes, look(protocol.system).name, protocol.idea)
    axes.set_xlim(0, 1)
    axes.set_ylim(rows + 0.2, -1.1)
    axes.axis("off")
    bottom = rows - 0.7
    for x, name in zip(_X, protocol.lanes, strict=True):
        if name:
            axes.text(x, -0.62, name, ha="center", va="center", color=MUTED)
            axes.plot([x, x], [-0.35, bottom], color=GRID, linewidth=1.2, zorder=1)
    seen = protocol.seen
    x = _X[_READER]
    axes.plot([x, x], [-0.3, seen], color=color, alpha=0.18, linewidth=9, solid_capstyle="butt")
    axes.plot([x, x], [seen, bottom], color=color, linewidth=9, solid_capstyle="butt")
    said = f"readers: {protocol.hidden}, then {protocol.visible}"
    axes.text(0.97, bottom + 0.62, said, ha="right", va="center", color=color)
    for y, step in enumerate(protocol.steps):
        _step(axes, step, y, color)


def _step(axes: Any, step: Step, y: int, color: str) -> None:
    x = _X[step.lane]
    clear = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
    if step.to is None:
        axes.plot([x], [y], marker="o", markersize=9, color=color, zorder=4)
        left = step.lane != _COORDINATOR
        axes.annotate(
            step.text,
            (x, y),
            xytext=(-9 if left else 9, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            color=INK,
            fontweight="bold",
            bbox=clear,
            zorder=3,
        )
        return
    end = _X[step.to]
    axes.annotate(
        "",
        (end, y),
        (x, y),
        arrowprops={"arrowstyle": "-|>", "color": MUTED, "lw": 1.2, "shrinkA": 0, "shrinkB": 2},
        zorder=3,
    )
    axes.text(
        (x + end) / 2, y, step.text, ha="center", va="center", color=INK, bbox=clear, zorder=4
    )
