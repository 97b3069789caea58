"""Parses what users write on a command line: times, sizes, places in a topic, rows, headers.

    7d  12h  90s  1d12h        seconds          10GB  512MiB  4096        bytes
    earliest  latest  42  2026-11-21T08:00      where to begin
    a, 1, ["a", 1], {"n": 3}                    keys and values: JSON where it is JSON, else text

Next: names.py.
"""

import json
import re
from datetime import datetime
from typing import Any

import typer

from ..api.columns.batch import counted

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_UNITS = {"": 1, **{u: 1000**n for n, u in enumerate("KMGT", 1)}}
_UNITS |= {f"{u}I": 1024**n for n, u in enumerate("KMGT", 1)}


def duration(text: str, option: str) -> float | None:
    """Parses a time into seconds; "none" is None. BadParameter names the option."""
    if text.lower() == "none":
        return None
    parts = re.fullmatch(r"(?:\d{1,15}(?:\.\d{1,15})?[smhdw])+", text.strip().lower())
    if parts is None:
        raise typer.BadParameter(f"{text!r} is no time like 7d, 12h, 30m, 90s", param_hint=option)
    terms = re.findall(r"([\d.]+)([smhdw])", parts[0])
    return sum(float(number) * _SECONDS[unit] for number, unit in terms)


def size(text: str, option: str) -> int | None:
    """Parses a size into bytes: GB are 10**9, GiB 2**30; "none" is None. BadParameter."""
    if text.lower() == "none":
        return None
    match = re.fullmatch(r"(\d{1,19}(?:\.\d{1,15})?)\s*([KMGT]?I?)B?", text.strip().upper())
    if match is None or match[2] not in _UNITS:
        raise typer.BadParameter(f"{text!r} is no size like 10GB or 512MiB", param_hint=option)
    number, unit = match[1], _UNITS[match[2]]
    return int(round(float(number) * unit) if "." in number else int(number) * unit)


def shown_duration(seconds: float | None) -> str:
    """Formats seconds so that `duration` can parse them: 604800 is 7d."""
    if seconds is None:
        return "none"
    for unit in "dhm":
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:.0f}{unit}"
    return f"{seconds:g}s"


def shown_size(number: int | None) -> str:
    """Formats bytes so that `size` can parse them: 10000000000 is 10GB."""
    if number is None:
        return "none"
    for unit in ("TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "KB"):
        factor = _UNITS[unit[:-1].upper()]
        if number >= factor and number % factor == 0:
            return f"{number // factor}{unit}"
    return str(number)


def readable(number: int) -> str:
    """Formats bytes for people: 4194304 is 4.2 MB."""
    if number < 1000:
        return counted(number, "byte")
    value, unit = number / 1000, "kB"
    for larger in ("MB", "GB", "TB"):
        if value < 999.95:
            break
        value, unit = value / 1000, larger
    return f"{value:.1f} {unit}"


def age(seconds: float | None) -> str:
    """Formats seconds for people: 192.7 is 3m 12s; None is -."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for large, small in ("dh", "hm", "ms"):
        if whole >= _SECONDS[large]:
            rest = whole % _SECONDS[large] // _SECONDS[small]
            return f"{whole // _SECONDS[large]}{large} {rest}{small}"
    raise AssertionError


def place(text: str, option: str) -> str | int | datetime:
    """Parses a place in a topic; a time without a zone is in this machine's. BadParameter."""
    if text in ("earliest", "latest"):
        return text
    if text.isdecimal() and len(text) < 20:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        moment.timestamp()  # may fail in the first hours of year 1 and the last of year 9999
        return moment
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"{text!r} is neither earliest, latest, an offset, nor a time like 2026-11-21T08:00",
            param_hint=option,
        ) from None


def headers(texts: list[str] | None) -> dict[str, str] | None:
    """Parses headers, each NAME=VALUE. BadParameter."""
    pairs = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
        pairs[name] = value
    return pairs or None


def parse(text: str) -> Any:
    """Parses JSON, with lists as tuples since keys need them; text that is not JSON stays text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _tuples(value)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def prefix(text: str | None) -> tuple[Any, ...] | None:
    """Parses the first elements of a tuple key; a single element needs no list."""
    if text is None:
        return None
    value = parse(text)
    return value if isinstance(value, tuple) else (value,)
