"""Runs a function over many items in several processes.

    spread      yields results as they come
    in_order    yields results in the items' order once all are done: the same for any number of processes

Next: command.py.
"""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Died(Exception):
    """A worker process crashed, without a Python exception."""


def spread(
    work: Callable[[T], R], items: Iterable[T], workers: int, ahead: int = 4
) -> Iterator[tuple[T, R]]:
    """Yields (item, result) as results come; `work` and items must pickle. Exceptions of `work` are raised here.

    Raises Died if a process crashed; its message lists the items in question.
    """
    if workers <= 1:
        for item in items:
            yield item, work(item)
        return
    waiting: dict[Future[R], T] = {}
    left = iter(items)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        try:
            while True:
                for item in left:
                    waiting[pool.submit(work, item)] = item
                    if len(waiting) >= workers * ahead:
                        break
                if not waiting:
                    return
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    item = waiting.pop(future)
                    try:
                        result = future.result()
                    except BrokenProcessPool:
                        raise Died(
                            f"a process died at one of {[item, *waiting.values()]}"
                        ) from None
                    yield item, result
        finally:
            for future in waiting:
                future.cancel()


def in_order(
    work: Callable[[T], R], items: Sequence[T], workers: int, tell: Callable[[str], None]
) -> Iterator[tuple[T, R]]:
    """Yields (item, result) of hashable items in order; raises Died after the results that were complete."""
    done: dict[T, R] = {}
    died: Died | None = None
    try:
        for item, result in spread(work, items, workers):
            done[item] = result
            tell(f"{len(done):,} of {len(items):,} runs")
    except Died as error:
        died = error
    yield from ((item, done[item]) for item in items if item in done)
    if died is not None:
        raise died
