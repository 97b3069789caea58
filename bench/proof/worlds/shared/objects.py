"""Puts the real log of an object store over calls that the world answers.

    Ownership ─▶ ObjectsLog ─▶ CalledObjects ─▶ Caller: PUT, GET, LIST, DELETE ─▶ an answer, or a pause there

An answer to PUT may be wrong or missing, a list may break off. Everything that follows of it is the real log's.

Left out: waiting. A call that fails is repeated at once, and only so often.

Next: machine.py.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol, TypeVar
from unittest.mock import patch

from .....errors import IoError, LogUnreachable
from .....shared import objects_log
from .....shared.ahead import Ahead
from .....shared.entry import Entry, chain_of, read_entry
from .....shared.objects_log import ObjectsLog
from .....shared.patient import PatientObjects
from ...simulator.inline import InlineExecutor

PUT, GET, LIST, DELETE = "put", "get", "list", "delete"
CREATED, EXISTS, UNKNOWN = "created", "exists", "unknown"
"""Answers to PUT."""
LOG, FLOOR = "log/", "floor/"
_TRIES = 2
_DECODED: dict[tuple[int, bytes], Entry] = {}
_DECODED_MAX = 1 << 14
_T = TypeVar("_T")


class Caller(Protocol):
    """Something that carries out a call, or pauses there."""

    def call(self, what: str, name: str = "", data: Any = b"") -> Any: ...


class CalledObjects:
    """An object store whose calls a caller answers. What it said stays, so there is nothing to sync."""

    def __init__(self, caller: Caller) -> None:
        self._call = caller.call

    def create(self, name: str, data: bytes) -> bool:
        answer = self._call(PUT, name, data)
        if answer == UNKNOWN:
            raise IoError("no answer")
        return bool(answer == CREATED)

    def get(self, name: str) -> bytes | None:
        data: bytes | None = self._call(GET, name)
        return data

    def names(self, prefix: str, start: str = "") -> list[str]:
        names, whole = self._call(LIST, prefix)
        if not whole:
            raise IoError("the list broke off")
        return [name for name in names if name > start]

    def sizes(self) -> dict[str, int]:
        raise AssertionError("sizes are for `planstep replicate status`: no machine asks for them")

    def remove(self, name: str) -> None:
        self._call(DELETE, name)

    def sync(self, name: str) -> None:
        pass

    def tidy(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Impatient(PatientObjects):
    """Repeats a call that fails at once."""

    def _patiently(self, attempt: Callable[[], _T]) -> _T:
        for _ in range(_TRIES):
            try:
                return attempt()
            except IoError as error:
                failed = error
        raise LogUnreachable("the shared log was not reached") from failed


class _InOrder(Ahead):
    """Fetches ahead one by one."""

    def begin(self, known: int, runs: list[tuple[int, int]]) -> None:
        super().begin(known, runs)
        assert self._pool is not None
        self._pool.shutdown()
        self._pool = InlineExecutor()  # type: ignore[assignment]


class ImpatientLog(ObjectsLog):
    """The real log, which does not wait, and decodes each entry once."""

    def __init__(self, caller: Caller) -> None:
        objects = CalledObjects(caller)
        super().__init__(objects, "the store")
        self._patient = _Impatient(objects, "the store")
        self._ahead = _InOrder(objects, "the store")

    def trim(self, turn: int, mark: bytes = b"") -> None:
        with patch.object(objects_log, "ThreadPoolExecutor", InlineExecutor):
            super().trim(turn, mark)

    def _decode(self, turn: int, data: bytes) -> Entry:
        if (turn, data) not in _DECODED:
            if len(_DECODED) >= _DECODED_MAX:
                _DECODED.clear()
            _DECODED[turn, data] = super()._decode(turn, data)
        return _DECODED[turn, data]


def turn_of(name: str) -> int:
    """Returns the number in an object's name."""
    return int(name.rpartition("/")[2])


@lru_cache(1 << 14)
def decoded(data: bytes) -> Entry:
    return read_entry(data, "an object")


chain = lru_cache(1 << 14)(chain_of)
