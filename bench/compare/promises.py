"""Sets what each system promises beside what the runs found: the table of promises.

    its mode's words (systems/entry.py: Promises) ─┐
    anomalies that the judges found, all runs ─────┴─▶ a row for each system: durable, tables, readers, zombie, …

Next: systems/entry.py.
"""

from collections import Counter
from typing import Any

from .ranking import entries
from .systems import headline, mode_of

_ADDED = {"missing": "lost", "duplicated": "repeated", "out_of_order": "reordered"}
"""An entry's own counts, by the names that the judges give them."""


def promises(systems: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each system that ran, in the order of the summary; docs/compare.md has the fields."""
    return [_row(name, systems) for name in systems]


def _row(name: str, systems: dict[str, Any]) -> dict[str, Any]:
    own = [(at, entry) for system, _, _, at, entry in entries(systems) if system == name]
    allowed, forbidden, judged = Counter[str](), Counter[str](), Counter[str]()
    for _, entry in own:
        allowed.update(entry["allowed_by"])
        forbidden.update(entry["violations_by"])
        forbidden.update({word: entry[field] for field, word in _ADDED.items() if entry[field]})
        judged.update(entry["judged"])
    placements = list(dict.fromkeys(at for at, _ in own))
    said = mode_of(name).promises
    return {
        "system": name,
        "placement": headline(name) if headline(name) in placements else placements[0],
        **said._asdict(),
        "anomalies": _in_words(allowed, forbidden, judged),
        "allowed": dict(allowed),
        "forbidden": dict(forbidden),
        "runs": sum(entry["repeats"] for _, entry in own),
        "memory_mb": max((entry["memory_peak_mb"] or 0.0 for _, entry in own), default=0.0) or None,
    }


def _in_words(allowed: Counter[str], forbidden: Counter[str], judged: Counter[str]) -> str:
    """Says which anomalies were found; a history that nobody could judge is no clean one."""
    parts = []
    if forbidden:
        parts.append(f"found, and forbidden: {_counts(forbidden)}")
    if allowed:
        parts.append(f"found, and allowed by its model: {_counts(allowed)}")
    if not parts:
        parts.append("none found" if judged else "not looked for: no history to judge")
    return "; ".join(parts)


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(found.items()))
