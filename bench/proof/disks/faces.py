"""Calls every public method with wrong arguments: each must be refused with a message, or succeed.

    inspect ─▶ Engine, Transaction, Topic, Table, Writer, Reader, SnapshotView: their methods and parameters
            ─▶ one or two arguments odd, the others right ─▶ PlanstepError, TypeError, ValueError, or done

Left out: methods that wait by design (process, closing), and those that write files to a given path (backup).

Next: ../rows/badinput.py.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import planstep
from planstep.errors import PlanstepError

from .contents import contents
from .mutating import odd_value
from .sample import settled

KEPT = "kept"
REFUSALS = (PlanstepError, TypeError, ValueError)
_LEFT_OUT = {"close", "process", "backup", "commit", "to_pandas", "load", "switch_log_batching"}
_RIGHT: dict[str, Any] = {
    "topic": "t", "table": "rows", "name": "t", "consumer": "c", "key": "k", "value": b"v", "values": [b"v"],
    "n": 1, "tx": "1-1", "partition": 0, "begin": 0, "end": 0, "to": 0, "before": 0, "fn": lambda tx: None,
    "timeout": 0.0, "max_records": 5, "txn": "(0,0)", "offset": 0, "seconds": 0.0,
}  # fmt: skip


def open_sample(hosts: int, mode: Any = "deterministic") -> planstep.Engine:
    db = planstep.open(":memory:", hosts=hosts, mode=mode)
    db.create_topic("t", partitions=2).write_batch([b"v"] * 4)
    if db.context.runtime.hooks.has_tables:
        db.create_table("rows", shards=2).put("k", 1)
        db.create_table(KEPT).put("k", "v")
    db.create_topic(KEPT).write_batch([b"v"] * 4, keys=[b"k"] * 4)
    with db.transaction() as tx:
        tx.read(KEPT, KEPT, max_records=2)
    settled(db)  # in mode kafka a commit returns before its markers are written everywhere
    return db


def unnamed_content(db: planstep.Engine) -> dict[str, Any]:
    """Returns the content that no call names, so it must never change."""
    return {name: value for name, value in contents(db).items() if KEPT in name}


_MAKERS: dict[Any, Callable[[planstep.Engine], Any]] = {
    planstep.Engine: lambda db: db,
    planstep.Transaction: lambda db: db.transaction(),
    planstep.Topic: lambda db: db.topic("t"),
    planstep.Table: lambda db: db.table("rows"),
    planstep.Writer: lambda db: db.topic("t").writer(),
    planstep.Reader: lambda db: db.reader("t", "c"),
    planstep.SnapshotView: lambda db: db.snapshot(),
}


def targets(db: planstep.Engine) -> Iterator[tuple[Any, str]]:
    """Yields (class, method) for every public method; `misuse` creates the object for each call."""
    for kind in _MAKERS:
        has_tables = db.context.runtime.hooks.has_tables
        if not has_tables and kind in (planstep.Table, planstep.SnapshotView):
            continue
        for name, _ in inspect.getmembers(kind, callable):
            if not name.startswith("_") and name not in _LEFT_OUT:
                yield kind, name


_MOST = {"timeout": 0.05, "deadline": 0.05, "attempts": 2, "partitions": 40, "shards": 40}
"""Upper bounds of valid arguments that would make a call wait longer or create more."""


def _arguments(
    random: Random, kind: Any, name: str, parameters: list[inspect.Parameter]
) -> dict[str, Any] | None:
    """Draws one or two odd arguments, the others right; None for a method without any."""
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not names:
        return None
    wrong = set(random.sample(names, min(len(names), random.choice([1, 1, 2]))))
    arguments = {
        p.name: odd_value(random) if p.name in wrong else _RIGHT.get(p.name, p.default)
        for p in parameters
        if p.name in wrong or p.default is p.empty
    }
    for what, most in _MOST.items():
        if isinstance(arguments.get(what), (int, float)) and arguments[what] > most:
            arguments[what] = most
    if name in ("create_topic", "create_table"):
        arguments.setdefault("exist_ok", True)
    if kind is planstep.Reader and "timeout" in names:
        arguments.setdefault("timeout", 0.0)
    return arguments


def misuse(random: Random, db: planstep.Engine, kind: Any, name: str, holds: bool = False) -> str:
    """Makes one call with odd arguments; returns what is wrong with its end, or "". With `holds`, a refused call
    must leave everything as it was.
    """
    method: Callable[..., Any] = getattr(kind, name)
    try:
        parameters = list(inspect.signature(method).parameters.values())[1:]
    except (TypeError, ValueError):
        return ""
    arguments = _arguments(random, kind, name, parameters)
    if arguments is None:
        return ""
    target: Any = None
    refused: BaseException | None = None
    before = contents(db) if holds else {}
    try:
        target = _MAKERS[kind](db)
        result = getattr(target, name)(**arguments)
        if inspect.isgenerator(result):
            next(result, None)
    except BaseException as error:
        if not isinstance(error, REFUSALS) or isinstance(error, UnicodeError) or not str(error):
            return _call_text(kind, name, arguments, error)
        refused = error
    finally:
        _release(target, db)
    if holds and refused is not None and contents(db) != before:
        return f"it was refused and changed something: {_call_text(kind, name, arguments, refused)}"
    return ""


def _release(target: Any, db: planstep.Engine) -> None:
    with suppress(*REFUSALS):
        if isinstance(target, planstep.Transaction):
            target.rollback()
        elif target is not db and hasattr(target, "close"):
            target.close()


def _call_text(kind: Any, name: str, arguments: dict[str, Any], error: BaseException) -> str:
    try:
        text = f"{arguments!r:.150}"
    except Exception:  # a number of thousands of digits cannot be printed
        text = str(sorted(arguments))
    return f"{kind.__name__}.{name}({text}): {type(error).__name__}: {error!s:.150}"
