"""Removes tracebacks from the errors that users of Spark meet: it would show them all of it.

Next: source.py.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..errors import PlanstepError

PLAIN = (PlanstepError, ValueError, TypeError, OSError)


def plainly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a method that Spark calls: it raises its errors without a traceback."""

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except PLAIN as error:
            raise error.with_traceback(None) from None

    return call
