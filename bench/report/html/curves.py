"""Draws curves: offered rate against latency and cost in reshard, threads against throughput of small transactions.

    summary["curves"]["rate"]         ─▶ latency, cost: a point for each rate that a system sustained
    summary["curves"]["concurrency"]  ─▶ small: a point for each number of threads

Each durability has drawings of its own. Axes are logarithmic, except of counts a transaction.

Next: phases.py.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ...compare.ranking import DURABILITIES
from ..text.blocks import number
from .content import Chapter, Note, Part
from .drawing import Drawing, Sheet, display_name, line, line_style, title
from .marks import decades, span
from .parts import deep
from .series import ms

Point = dict[str, Any]
Curve = dict[str, Any]
Panel = tuple[str, str, Callable[[Point], float | None], bool]
"""Subject, unit, how to read a point, and whether the axis is logarithmic."""


def _figure(*path: str) -> Callable[[Point], float | None]:
    return lambda point: deep(point, *path)


_LATENCY: tuple[Panel, ...] = (
    ("end to end, median", "ms, due → received", _figure("end_to_end_ms", "p50"), True),
    ("end to end, p99", "ms, due → received", _figure("end_to_end_ms", "p99"), True),
    ("commit, median", "ms, called → answered", _figure("commit_ms", "p50"), True),
    ("commit, p99", "ms, called → answered", _figure("commit_ms", "p99"), True),
)
_COST: tuple[Panel, ...] = (
    ("CPU", "ms a transaction", _figure("cpu_ms_per_transaction"), True),
    ("CPU", "cores", _figure("cpu_cores"), True),
    ("to disk", "bytes per byte of payload", _figure("disk_bytes_per_payload_byte"), False),
    ("syncs", "a transaction", _figure("syncs_per_transaction"), False),
)
_THREADS: tuple[Panel, ...] = (
    ("throughput", "transactions a second", _figure("transactions_per_second", "median"), True),
    ("transaction, p99", "ms, begin → answered", _figure("done_ms", "p99"), True),
    ("CPU", "ms a transaction", _figure("cpu_ms"), True),
    ("syncs", "a transaction", _figure("syncs"), False),
)


def curves(summary: dict[str, Any]) -> Chapter | None:
    """Returns the chapter of all curves; None if the comparison has none."""
    kinds = (("rate", _latency), ("rate", _cost), ("concurrency", _threads))
    parts: list[Part] = [
        drawing
        for kind, draw in kinds
        for durability in DURABILITIES
        for drawing in draw(
            [curve for curve in _in_order(summary, kind) if curve["durability"] == durability],
            durability,
        )
    ]
    if not parts:
        return None
    if not any(isinstance(part, Drawing) and part.name.startswith("rate") for part in parts):
        text = "No rate was searched here, so there is no curve of rates. This command draws it:"
        parts.append(
            Note("absent", text, "planstep compare --workload reshard --find-rate --out DIR")
        )
    lead = "A single rate shows one point. These curves show where each system bends, and what it costs on the way."
    return Chapter(0, "curves", "Curves", lead, parts)


def _in_order(summary: dict[str, Any], kind: str) -> list[Curve]:
    """Returns the curves of a kind in the order of the systems in the summary, as in all other drawings."""
    curves = (summary.get("curves") or {}).get(kind, [])
    order = [*summary["systems"], *(curve["system"] for curve in curves)]
    return sorted(curves, key=lambda curve: order.index(curve["system"]))


_ENDS = "A line ends at the highest rate that was found to be sustained"
_RATE = ("rate_mb_s", "offered, MB/s")


def _latency(curves: Sequence[Curve], durability: str) -> list[Drawing]:
    kept = _sustained(curves)
    most = "; ".join(f"{_name(curve)} {number(curve['highest_mb_s'])} MB/s" for curve, _ in kept)
    late = ", ".join(_name(one) for one in curves if one not in [curve for curve, _ in kept])
    return _drawing(
        f"rate-latency-{durability}",
        f"Offered rate against latency in reshard, durability {durability}",
        f"{_ENDS}: {most}. Lower is better.{f' No rate was sustained by {late}.' if late else ''}",
        _RATE,
        _LATENCY,
        kept,
    )


def _cost(curves: Sequence[Curve], durability: str) -> list[Drawing]:
    return _drawing(
        f"rate-cost-{durability}",
        f"Offered rate against cost in reshard, durability {durability}",
        f"{_ENDS}. A system's servers are counted, too. Lower is better.",
        _RATE,
        _COST,
        _sustained(curves),
    )


def _threads(curves: Sequence[Curve], durability: str) -> list[Drawing]:
    return _drawing(
        f"small-{durability}",
        f"Threads against throughput of small transactions, durability {durability}",
        "A small transaction reads a record, moves its position, updates two rows and writes a record. Each thread "
        "begins its next transaction when the last one has ended. Shaded: from the lowest repeat to the highest.",
        ("threads", "threads"),
        _THREADS,
        [(curve, curve["points"]) for curve in curves if curve["points"]],
    )


def _sustained(curves: Sequence[Curve]) -> list[tuple[Curve, list[Point]]]:
    """Returns the curves that have points with figures, each with these."""
    kept = [
        (curve, [point for point in curve["points"] if point["sustained"] and point["verified"]])
        for curve in curves
    ]
    return [(curve, points) for curve, points in kept if points]


def _name(curve: Curve) -> str:
    return display_name(curve["system"], curve["placement"])


Drawn = Sequence[tuple[Curve, list[Point]]]


def _drawing(
    name: str, title: str, caption: str, x: tuple[str, str], panels: Sequence[Panel], drawn: Drawn
) -> list[Drawing]:
    """Returns the drawing of those panels that have any point; none if none has."""
    able = [p for p in panels if any(p[2](point) for _, points in drawn for point in points)]
    if not able:
        return []
    subject, unit, read, _ = able[0]
    texts = [
        f"{_name(curve)}: " + ", ".join(f"{_say(read(p), unit)} at {p[x[0]]:g}" for p in points)
        for curve, points in drawn
    ]
    alt = f"{title}. {subject}, {unit}, by {x[1]}: {'; '.join(texts)}."
    return [Drawing(name, title, alt, caption, lambda sheet: _paint(sheet, x, able, drawn))]


def _say(value: float | None, unit: str) -> str:
    return ms(value) if unit.startswith("ms,") else number(value)


def _paint(sheet: Sheet, x: tuple[str, str], panels: Sequence[Panel], drawn: Drawn) -> None:
    legend = [(_name(curve), _style(curve)) for curve, _ in drawn]
    axes = sheet.panels(len(panels), height=1.25, columns=2, legend=legend)
    places = [point[x[0]] for _, points in drawn for point in points]
    for panel, (subject, unit, read, logarithmic) in zip(axes, panels, strict=True):
        title(panel, subject, unit)
        marks = places if x[0] == "threads" else ()
        decades(panel, "x", min(places) / 1.25, max(places) * 1.25, marks=marks)
        panel.set_xlabel(x[1])
        for curve, points in reversed(drawn):
            known = [
                (p[x[0]], value, p)
                for p in points
                if (value := read(p)) is not None and (value or not logarithmic)
            ]
            panel.plot([at for at, *_ in known], [value for _, value, _ in known], **_style(curve))
            _shade(panel, curve, known, read)
        values = [v for _, points in drawn for p in points if (v := read(p))]
        if logarithmic:
            decades(panel, "y", *span(values))
        else:
            panel.set_ylim(0, 1.15 * max(values, default=1.0))
            panel.locator_params(axis="y", nbins=4)
        panel.grid(visible=True)


def _style(curve: Curve) -> dict[str, Any]:
    system = curve["system"]
    marker = {"marker": line_style(system).marker, "markersize": 4.5}
    return line(system, curve["placement"]) | {"linewidth": 1.5} | marker


def _shade(panel: Any, curve: Curve, known: Sequence[tuple[Any, ...]], read: Any) -> None:
    """Shades from the lowest to the highest repeat, where the panel's figure has them."""
    of = [(at, p["transactions_per_second"]) for at, _, p in known if "threads" in p]
    if of and read(known[0][2]) == of[0][1]["median"]:
        shade = {"color": line_style(curve["system"]).color, "alpha": 0.15, "linewidth": 0}
        panel.fill_between(*zip(*((at, r["low"], r["high"]) for at, r in of), strict=True), **shade)
