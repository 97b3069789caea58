"""Draws waits: one transaction held open, plain writes with transactions, dropped sessions, killed owners.

Next: protocols.py.
"""

from ...compare.systems import MODES
from .drawing import Drawing, Sheet, title
from .marks import ROW_IN, Group, Row, dots, span
from .parts import deep, told
from .series import Comparison, Series, ms

Panel = tuple[str, str, list[Row | Group | None]]
_HELD = (
    ("before", "before"),
    ("while_held", "while one transaction is open"),
    ("after", "after it has ended"),
)
_BESIDE = (
    ("plain_alone", "alone"),
    ("plain_beside", "beside transactions"),
)


def held_open(comparison: Comparison, durability: str) -> Drawing | None:
    series = told(comparison, "held-open", durability)
    panel = _by_part(series, _HELD, "end to end", "of the quick transactions", ())
    if panel is None:
        return None
    return _drawing(
        f"held-open-{durability}",
        f"End to end of quick transactions before, while and after one is held open, durability {durability}",
        "Dot: median, bar: 99 %. A reader of committed records is kept where data lies in the log before it "
        "counts.",
        [panel],
    )


def plain_beside(comparison: Comparison, durability: str) -> Drawing | None:
    series = told(comparison, "plain-beside", durability)
    panels = [
        _by_part(series, _BESIDE, "write", "due → durable", ("write_ms",)),
        _by_part(series, _BESIDE, "end to end", "due → received", ("end_to_end_ms",)),
    ]
    known = [panel for panel in panels if panel is not None]
    if not known:
        return None
    return _drawing(
        f"plain-beside-{durability}",
        f"Plain writes alone and beside transactions on the same topic, durability {durability}",
        "Dot: median, bar: 99 %. Plain writes, first alone, then with transactions in the same partitions.",
        known,
    )


def _by_part(
    series: list[Series],
    parts: tuple[tuple[str, str], ...],
    words: str,
    unit: str,
    path: tuple[str, ...],
) -> Panel | None:
    rows: list[Row | Group | None] = []
    for one in series:
        found = [
            Row(
                said,
                one.system,
                value,
                deep(one.entry["extra"], name, *path, "p99"),
            )
            for name, said in parts
            if (value := deep(one.entry["extra"], name, *path, "p50")) is not None
        ]
        if found:
            rows += [Group(one.name, one.system), *found]
    return (words, unit, rows) if rows else None


def with_and_without(comparison: Comparison, durability: str) -> Drawing | None:
    """Draws reshard and plain writes of the same bytes, at the same rate."""
    plain = {(o.system, o.placement): o for o in comparison.of("plain", durability)}
    panels: list[Panel] = []
    for name, words, unit in (
        ("write_ms", "write", "due → durable"),
        ("end_to_end_ms", "end to end", "due → received"),
    ):
        rows: list[Row | Group | None] = []
        for one in comparison.of("reshard", durability):
            beside = plain.get((one.system, one.placement))
            if beside is None:
                continue
            found = [
                Row(said, one.system, told["p50"], told["p99"])
                for said, of in (("with transactions", one), ("without", beside))
                if (told := of.entry[name])
            ]
            rows += [Group(one.name, one.system), *found] if found else []
        if rows:
            panels.append((words, unit, rows))
    if not panels:
        return None
    return _drawing(
        f"plain-{durability}",
        f"Latency with and without transactions, the same bytes at the same rate, durability {durability}",
        "Dot: median, bar: 99 %. With transactions a record waits for its commit before a reader has it.",
        panels,
    )


# faults -------------------------------------------------------------------------------------------


def faults(comparison: Comparison, durability: str) -> Drawing | None:
    series = told(comparison, "faults", durability)
    panels = [
        _faults(series, "dropped", "a session dropped", ("goes_on_ms", "readable_ms")),
        _faults(series, "killed", "killed with kill -9", ("first_commit_ms", "readable_ms")),
    ]
    known = [panel for panel in panels if panel is not None]
    if not known:
        return None
    return _drawing(
        f"faults-{durability}",
        f"Time until another one's commit is answered, and until a reader has its records, durability {durability}",
        "Dot: until work goes on, a commit of others is answered. Bar: until a reader has their records. Medians. "
        f"Transactions time out after 1 s here{''.join(f'; {m.time_out}' for m in MODES if m.time_out)}.",
        known,
    )


def _faults(series: list[Series], what: str, words: str, names: tuple[str, str]) -> Panel | None:
    rows: list[Row | Group | None] = []
    for one in series:
        ways = one.entry["extra"].get(what)
        found: list[Row] = []
        for way, figures in (ways if isinstance(ways, dict) else {}).items():
            if not isinstance(figures, dict):
                continue
            first, readable = (deep(figures, name) for name in names)
            limit = deep(figures, "not_within_ms")
            said = f"not within {ms(limit)}" if first is None and limit is not None else None
            if first is not None or said is not None:
                found.append(Row(way, one.system, first, readable, said))
        if found:
            rows += [Group(one.name, one.system), *found]
    return (words, "goes on … is readable", rows) if rows else None


# drawn --------------------------------------------------------------------------------------------


def _drawing(name: str, alt: str, caption: str, panels: list[Panel]) -> Drawing:
    said = []
    for words, _, rows in panels:
        for row in rows:
            if isinstance(row, Group):
                said.append(f"{row.label} ({words})")
            elif row is not None:
                said.append(f"{row.label} {row.said or f'{ms(row.value)}, {ms(row.far)}'}")
    return Drawing(name, f"{alt}: {'; '.join(said)}.", caption, lambda sheet: _paint(sheet, panels))


def _paint(sheet: Sheet, panels: list[Panel]) -> None:
    values = [
        value
        for _, _, rows in panels
        for row in rows
        if isinstance(row, Row)
        for value in (row.value, row.far)
        if value is not None
    ]
    low, high = span(values, 0.1)
    tall = max(len(rows) for _, _, rows in panels)
    axes = sheet.panels(len(panels), height=tall * ROW_IN)
    for panel, (words, unit, rows) in zip(axes, panels, strict=True):
        title(panel, words, unit)
        dots(panel, [*rows, *[None] * (tall - len(rows))], low, high)
