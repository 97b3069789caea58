"""Who persists what: durable changes of a transaction, by the talk's rows; and mode × placement, corner by corner.

Next: usage.py.
"""

from typing import Any

from ..judging import DURABILITIES, at_headline, in_words
from ..layout import number
from ..persists import ROWS, by_row
from .drawing import GRID, INK, MUTED, Drawing, Sheet, line, look, quiet, title
from .marks import ROW_IN, slopes

_ROWS = [row for row, _ in ROWS]
_CORNERS = (
    *("write_ms.p50", "commit_ms.p50", "visible_ms.p50", "end_to_end_ms.p50", "cpu_cores"),
    *("hops_before_reply", "messages_per_transaction", "syncs_per_transaction"),
)


def persists(systems: dict[str, Any]) -> Drawing | None:
    """Of each system as it is meant to stand; one durability, steps are the same at each."""
    counted: dict[str, dict[str, float]] = {}
    for durability in DURABILITIES:
        for name, entry in at_headline(systems, "reshard", durability):
            if entry["steps"]:
                counted.setdefault(name, by_row(entry["steps"]))
    if not counted:
        return None
    told = "; ".join(
        f"{look(name).name}: "
        + ", ".join(f"{row} {number(float(counts.get(row, 0.0)))}" for row in _ROWS)
        for name, counts in counted.items()
    )
    return Drawing(
        "persists",
        f"Durable changes a transaction, by what they are for. {told}.",
        "Durable changes a transaction makes, counted, in the order in which they happen; the axis is logarithmic. "
        "An empty line: nothing is made durable for that. Below it, where the talk says that Kafka and YDB keep it.",
        lambda sheet: _paint_persists(sheet, counted),
    )


def _paint_persists(sheet: Sheet, counted: dict[str, dict[str, float]]) -> None:
    from ..published import WHO_PERSISTS

    talk = {row: (kafka, ydb) for row, kafka, ydb in WHO_PERSISTS}
    legend = [
        (look(name).name, {"color": look(name).color, "marker": look(name).marker, "linewidth": 0})
        for name in counted
    ]
    (axes,) = sheet.panels(
        1, height=len(_ROWS) * (ROW_IN + 0.14), left=0.2, right=0.4, top=0.1, legend=legend
    )
    axes.set_xscale("log")
    known = [n for counts in counted.values() for n in counts.values() if n > 0]
    low, high = min(known, default=1.0) / 2, max(known, default=1.0) * 2
    axes.set_xlim(low, high)
    axes.xaxis.set_minor_locator(_none())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_ylim(len(_ROWS) - 0.3, -0.6)
    axes.set_yticks([])
    axes.grid(axis="x", color=GRID)
    quiet(axes, y=False)
    axes.set_xlabel("durable changes a transaction")
    for y, row in enumerate(_ROWS):
        axes.axhline(y, color=GRID, linewidth=0.8, zorder=1)
        axes.text(0, y - 0.2, row, transform=axes.get_yaxis_transform(), va="bottom", color=INK)
        if row in talk:
            kafka, ydb = talk[row]
            axes.text(
                1,
                y - 0.2,
                f"talk: Kafka {kafka} · YDB {ydb}" if sheet.wide else "",
                transform=axes.get_yaxis_transform(),
                va="bottom",
                ha="right",
                color=MUTED,
            )
        values = sorted((counts[row], name) for name, counts in counted.items() if counts.get(row))
        for place, (value, name) in enumerate(values):
            of = look(name)
            axes.plot([value], [y], marker=of.marker, markersize=7, color=of.color, zorder=3)
            axes.annotate(
                number(float(value)),
                (value, y),
                xytext=(-9, 0) if place == 0 and len(values) > 1 else (9, 0),
                textcoords="offset points",
                ha="right" if place == 0 and len(values) > 1 else "left",
                va="center",
                color=of.color,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
                zorder=2,
            )


def _none() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


# mode × placement ---------------------------------------------------------------------------------


def corners(fate: dict[str, Any] | None) -> dict[str, Drawing]:
    """By durability."""
    found = {}
    for durability in DURABILITIES:
        rows = {name: row for name, row in ((fate or {}).get(durability) or {}).items()}
        shown = [(name, rows[name]) for name in _CORNERS if name in rows]
        if shown:
            found[durability] = _corners(durability, (fate or {}).get("kafka", "kafka"), shown)
    return found


def _corners(durability: str, kafka: str, shown: list[tuple[str, dict[str, float]]]) -> Drawing:
    told = "; ".join(
        f"{in_words(name)}: deterministic {number(row['deterministic_shared'])} shared, "
        f"{number(row['deterministic_separate'])} separate, {look(kafka).name} "
        f"{number(row['kafka_shared'])} shared, {number(row['kafka_separate'])} separate"
        for name, row in shown
    )
    return Drawing(
        f"corners-{durability}",
        f"Mode by placement, durability {durability}. {told}.",
        "Each panel has four corners: a line is a mode, its ends are where the tablets stand. How far a line climbs is "
        "what shared fate saves; how far the lines are apart is what the protocol makes.",
        lambda sheet: _paint_corners(sheet, kafka, shown),
    )


def _paint_corners(sheet: Sheet, kafka: str, shown: list[tuple[str, dict[str, float]]]) -> None:
    legend = [(look(name).name, line(name)) for name in ("deterministic", kafka)]
    axes = sheet.panels(
        len(shown), height=1.35, columns=min(4, len(shown)), left=0.34, right=0.12, legend=legend
    )
    for panel, (name, row) in zip(axes, shown, strict=True):
        words, _, unit = in_words(name).partition(", ")
        title(panel, words.replace("CPU cores at the same rate", "CPU cores"), unit)
        lines = []
        for system, prefix in (("deterministic", "deterministic"), (kafka, "kafka")):
            values = [row[f"{prefix}_shared"], row[f"{prefix}_separate"]]
            of = look(system)
            panel.plot([0, 1], values, **line(system), marker=of.marker, markersize=6)
            lines.append((system, values))
        slopes(panel, ("shared", "separate"), lines, lambda value: number(float(value)))
        panel.set_yticks([])
        panel.spines["left"].set_visible(False)
