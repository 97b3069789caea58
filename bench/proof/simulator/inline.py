"""Runs at once what the real code gives to threads: for models and simulated worlds, which have an order of events.

Next: fiber.py.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any


class InlineExecutor:
    """A pool whose calls are done when they are submitted (concurrent.futures.ThreadPoolExecutor)."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, call: Callable[..., Any], items: Iterable[Any]) -> Iterator[Any]:
        return map(call, items)

    def shutdown(self, *, cancel_futures: bool = False) -> None:
        pass
