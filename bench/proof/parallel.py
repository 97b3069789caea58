"""Runs a row's work over many items in several processes, and adds up the results.

    items ─▶ work(item), a process a core ─▶ RowResult ─┐
                                          ─▶ RowResult ─┴▶ their sum, its violations in the items' order

Next: command.py.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from .rows.registry import RowOptions, RowResult

T = TypeVar("T")
_AHEAD = 4
"""Items that wait for each process, so that none is idle."""


def gather(
    options: RowOptions,
    work: Callable[[T], RowResult],
    items: Sequence[T],
    again: Callable[[T], str] | None = None,
) -> RowResult:
    """Returns the sum of all results; `work` and items must pickle, and exceptions of `work` are raised here.

    A process that crashes is a violation, which lists the items in question. `again` returns the line to print
    below an item's violations; None: all are repeated by the whole row.
    """
    result = RowResult(seeds=(options.seed, options.seed))
    violations: dict[int, list[str]] = {}
    for number, part in _spread(work, items, options.workers):
        line = "" if again is None or number == len(items) else f"\n{again(items[number])}"
        violations[number] = [text + line for text in part.violations]
        result.add(replace(part, violations=[]))
        wrong = sum(map(len, violations.values()))
        options.tell(
            f"{len(violations):,} of {len(items):,}: {result.runs:,} runs, {wrong:,} violations"
        )
    result.violations = [text for number in sorted(violations) for text in violations[number]]
    return result


def _spread(
    work: Callable[[T], RowResult], items: Sequence[T], workers: int
) -> Iterator[tuple[int, RowResult]]:
    """Yields (number of the item, result) as results come."""
    if workers <= 1:
        yield from enumerate(map(work, items))
        return
    numbers = iter(range(len(items)))
    waiting: dict[Future[RowResult], int] = {}
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        try:
            while True:
                for number in islice(numbers, workers * _AHEAD - len(waiting)):
                    waiting[pool.submit(work, items[number])] = number
                if not waiting:
                    return
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield waiting[future], future.result()
                    del waiting[future]
        except BrokenProcessPool:
            at = [items[number] for number in waiting.values()]
            yield len(items), RowResult(violations=[f"a process died at one of {at}"])
        finally:
            for future in waiting:
                future.cancel()
