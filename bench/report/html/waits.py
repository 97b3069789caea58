"""Draws waits: one transaction held open, plain writes with transactions, dropped sessions, killed owners.

Next: protocols.py.
"""

from collections.abc import Iterable

from ...compare.systems import MODES
from .drawing import Drawing, Sheet, title
from .marks import ROW_IN, Group, Row, dots, span
from .parts import deep
from .series import Comparison, Series, ms

Rows = list[Row | Group | None]
Panel = tuple[str, str, Rows]
_HELD = (
    ("before", "before"),
    ("while_held", "while one transaction is open"),
    ("after", "after it has ended"),
)
_SHARED = (("plain_alone", "alone"), ("plain_beside", "with transactions"))
_DOTS = "Dot: median. Bar: up to the 99th percentile. "


def held_open(comparison: Comparison, durability: str) -> Drawing | None:
    series = comparison.extras("held-open", durability)
    return _drawing(
        f"held-open-{durability}",
        f"One transaction held open, durability {durability}",
        f"End to end of quick transactions before, while and after one is held open, durability {durability}",
        f"{_DOTS}Where records lie in the log before their commit, a reader of committed records waits for them.",
        [_by_part(series, _HELD, "end to end", "of the quick transactions", ())],
    )


def plain_beside(comparison: Comparison, durability: str) -> Drawing | None:
    series = comparison.extras("plain-beside", durability)
    return _drawing(
        f"plain-beside-{durability}",
        f"Plain writes beside transactions, durability {durability}",
        f"Plain writes alone and with transactions on the same topic, durability {durability}",
        f"{_DOTS}Plain writes run alone first, then with transactions in the same partitions.",
        [
            _by_part(series, _SHARED, "write", "due → durable", ("write_ms",)),
            _by_part(series, _SHARED, "end to end", "due → received", ("end_to_end_ms",)),
        ],
    )


def _group(groups: Iterable[tuple[Series, list[Row]]]) -> Rows:
    """Returns the rows of each system below its name."""
    rows: Rows = []
    for one, rows_of_one in groups:
        if rows_of_one:
            rows += [Group(one.name, one.system), *rows_of_one]
    return rows


def _by_part(
    series: list[Series],
    parts: tuple[tuple[str, str], ...],
    words: str,
    unit: str,
    path: tuple[str, ...],
) -> Panel:
    def rows(one: Series) -> list[Row]:
        return [
            Row(text, one.system, value, deep(one.entry["extra"], name, *path, "p99"))
            for name, text in parts
            if (value := deep(one.entry["extra"], name, *path, "p50")) is not None
        ]

    return words, unit, _group((one, rows(one)) for one in series)


def with_and_without(comparison: Comparison, durability: str) -> Drawing | None:
    """Draws reshard and plain writes of the same bytes, at the same rate."""
    plain = {(o.system, o.placement): o for o in comparison.of("plain", durability)}

    def rows(one: Series, name: str) -> list[Row]:
        without = plain.get((one.system, one.placement))
        both = (("with transactions", one), ("without", without)) if without else ()
        return [
            Row(text, one.system, figures["p50"], figures["p99"])
            for text, of in both
            if (figures := of.entry[name])
        ]

    series = comparison.of("reshard", durability)
    panels: list[Panel] = [
        (words, unit, _group((one, rows(one, name)) for one in series))
        for name, words, unit in (
            ("write_ms", "write", "due → durable"),
            ("end_to_end_ms", "end to end", "due → received"),
        )
    ]
    return _drawing(
        f"plain-{durability}",
        f"With and without transactions, durability {durability}",
        f"Latency with and without transactions, the same bytes at the same rate, durability {durability}",
        f"{_DOTS}With transactions, a record reaches the reader only after its commit.",
        panels,
    )


# faults -------------------------------------------------------------------------------------------


def faults(comparison: Comparison, durability: str) -> Drawing | None:
    series = comparison.extras("faults", durability)
    return _drawing(
        f"faults-{durability}",
        f"After a fault: until work goes on, durability {durability}",
        f"Time until another one's commit is answered, and until a reader has its records, durability {durability}",
        "Dot: the time until another worker's commit is answered. Bar: the time until a reader has its records. "
        "Both are medians. "
        f"Transactions time out after 1 s here{''.join(f'; {m.time_out}' for m in MODES if m.time_out)}.",
        [
            _faults(series, "dropped", "a session dropped", ("goes_on_ms", "readable_ms")),
            _faults(series, "killed", "killed with kill -9", ("first_commit_ms", "readable_ms")),
        ],
    )


def _faults(series: list[Series], fault: str, words: str, names: tuple[str, str]) -> Panel:
    def rows(one: Series) -> Iterable[Row]:
        cases = one.entry["extra"].get(fault)
        for case, figures in (cases if isinstance(cases, dict) else {}).items():
            first, readable = (deep(figures, name) for name in names)
            limit = deep(figures, "not_within_ms")
            if first is not None:
                yield Row(case, one.system, first, readable)
            elif limit is not None:
                yield Row(case, one.system, None, readable, f"not within {ms(limit)}")

    return words, "commit … readable", _group((one, list(rows(one))) for one in series)


# drawn --------------------------------------------------------------------------------------------


def _drawing(name: str, title: str, alt: str, caption: str, panels: list[Panel]) -> Drawing | None:
    """Returns the drawing of the panels with rows; None if none has any."""
    panels = [panel for panel in panels if panel[2]]
    if not panels:
        return None
    texts = []
    for words, _, rows in panels:
        for row in rows:
            if isinstance(row, Group):
                texts.append(f"{row.label} ({words})")
            elif row is not None:
                texts.append(f"{row.label} {row.text or f'{ms(row.value)}, {ms(row.far)}'}")
    alt = f"{alt}: {'; '.join(texts)}."
    return Drawing(name, title, alt, caption, lambda sheet: _paint(sheet, panels))


def _paint(sheet: Sheet, panels: list[Panel]) -> None:
    points = [row for _, _, rows in panels for row in rows if isinstance(row, Row)]
    low, high = span([v for row in points for v in (row.value, row.far) if v is not None], 0.1)
    tall = max(len(rows) for _, _, rows in panels)
    axes = sheet.panels(len(panels), height=tall * ROW_IN)
    for panel, (words, unit, rows) in zip(axes, panels, strict=True):
        title(panel, words, unit)
        dots(panel, [*rows, *[None] * (tall - len(rows))], low, high)
