"""Checks callers' numbers, names and columns before anything is done with them.

    integer, whole     a number of something     TypeError: no int, or a bool      ValueError: out of range
    seconds            a time to wait            TypeError: no number              ValueError: NaN, negative
    items_of           values of many records    TypeError: one text, or nothing to iterate over

Next: limits.py.
"""

import threading
from typing import Any

INT_MAX = (1 << 63) - 1
"""The largest offset, sequence number and limit."""
_SECONDS_MAX = threading.TIMEOUT_MAX / 2
"""The longest time that can be added to the clock and given to locks without overflow: years."""


def check_worker(worker: Any, what: str = "worker") -> str | None:
    """Returns a worker's name as given, or None; TypeError or ValueError for anything else."""
    if worker is None:
        return None
    if not isinstance(worker, str):
        raise TypeError(f"{what} is a name, not {brief(worker)}")
    try:
        size = len(worker.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} is a name in Unicode, not {worker!r}") from None
    if not 0 < size <= 200:
        raise ValueError(f"{what} is a name of 1 to 200 bytes")
    return worker


def integer(what: str, value: Any) -> int:
    """Returns an int of any size; `what` names it in the error."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is an int, not {brief(value)}")
    return value


def whole(what: str, value: Any, low: int = 0, high: int = INT_MAX) -> int:
    """Returns an int that is in range."""
    number = integer(what, value)
    if number < low:
        raise ValueError(f"{what} is at least {low:,}, not {brief(value)}")
    if number > high:
        raise ValueError(f"{what} is at most {high:,}")
    return number


def seconds(what: str, value: Any) -> float:
    """Returns a number of seconds, cut to the longest that clocks can count; infinity means for ever."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} is a number of seconds, not {brief(value)}")
    if not value >= 0:
        raise ValueError(f"{what} is a number of seconds, at least 0, not {brief(value)}")
    return float(min(value, _SECONDS_MAX))


def seconds_or_none(what: str, value: Any) -> float | None:
    return None if value is None else seconds(what, value)


def items_of(where: str, name: str, values: Any) -> list[Any] | tuple[Any, ...]:
    """Returns many values as a list; a single text or bytes object is a TypeError."""
    if isinstance(values, (list, tuple)):
        return values
    if not isinstance(values, (str, bytes, bytearray, memoryview)):
        try:
            items = iter(values)
        except TypeError:
            pass
        else:
            return list(items)
    raise TypeError(f"{where}: {name} is a list of them, not one {brief(values)}")


def brief(value: Any) -> str:
    """Shows a value in an error: shortened, and without numbers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of more than 200 bits"
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # it nests too deep, or holds such a number
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 60 else text[:59] + "…"
