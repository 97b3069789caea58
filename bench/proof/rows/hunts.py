"""Plants each bug of a row once, and counts how long it took until the judge said what it has to say.

Next: shared.py and shared_model.py, which hunt.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..parallel import gather
from .registry import RowOptions, RowResult


class Hunt(NamedTuple):
    """A bug to plant, and the first seed to try."""

    name: str
    seed: int


def hunts(options: RowOptions, names: Iterable[str], known: Mapping[str, int]) -> list[Hunt]:
    """Returns a hunt for each bug; a quick run begins with the seed that is `known` to catch it."""
    first = known if options.quick else {}
    return [Hunt(name, first.get(name, options.seed)) for name in names]


def hunt_all(
    options: RowOptions, work: Callable[[Any], RowResult], todo: list[Hunt], needed: str
) -> RowResult:
    """Runs the hunts: the judge has to report every bug. `needed` names the figure of the tries."""
    result = gather(options, work, todo)
    tried = result.figures["tried"]
    missed = [hunt.name for hunt in todo if hunt.name not in tried]
    figures: dict[str, Any] = {needed: dict(sorted(tried.items()))}
    if missed:
        figures |= {"not_noticed": missed, "said_instead": result.violations}
    said = [] if missed else result.figures["said"]
    return RowResult(len(tried), violations=said, figures=figures)
