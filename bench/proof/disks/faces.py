"""Every public call with arguments that it does not take: refused with words, or done; never anything else.

    inspect ─▶ Engine, Transaction, Topic, Table, Writer, Reader, SnapshotView: their methods and parameters
            ─▶ one or two arguments odd, the others right ─▶ PlanstepError, TypeError, ValueError, or done

Left out: what waits by its nature (process, closing), and what writes files where it is told to (backup).

Next: ../badinput.py.
"""

import inspect
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import planstep
from planstep.errors import PlanstepError

from .mutating import odd

REFUSALS = (PlanstepError, TypeError, ValueError)
_LEFT_OUT = {"close", "process", "backup", "commit", "to_pandas", "load", "switch_log_batching"}
_RIGHT: dict[str, Any] = {
    "topic": "t", "table": "rows", "name": "t", "consumer": "c", "key": "k", "value": b"v", "values": [b"v"],
    "n": 1, "tx": "1-1", "partition": 0, "begin": 0, "end": 0, "to": 0, "before": 0, "fn": lambda tx: None,
    "timeout": 0.0, "max_records": 5,
}  # fmt: skip


def begun(hosts: int, mode: Any = "deterministic") -> planstep.Engine:
    db = planstep.open(":memory:", hosts=hosts, mode=mode)
    db.create_topic("t", partitions=2).write_batch([b"v"] * 4)
    if mode == "deterministic":
        db.create_table("rows", shards=2).put("k", 1)
    return db


def targets(db: planstep.Engine) -> Iterator[tuple[Any, str]]:
    """(object, method) of all that is public, made anew for each call by `called`."""
    kinds: list[Any] = [planstep.Engine, planstep.Transaction, type(db.topic("t"))]
    kinds += [type(db.table("rows"))] if db.tables() else []
    with db.topic("t").writer() as writer:
        kinds.append(type(writer))
    if db.mode == "deterministic":
        with db.snapshot() as view:
            kinds.append(type(view))
    for kind in kinds:
        for name, _ in inspect.getmembers(kind, callable):
            if not name.startswith("_") and name not in _LEFT_OUT:
                yield kind, name


def _made(db: planstep.Engine, kind: Any) -> Any:
    if kind is planstep.Engine:
        return db
    if kind is planstep.Transaction:
        return db.transaction()
    name = kind.__name__
    if name == "Table":
        return db.table("rows")
    if name == "SnapshotView":
        return db.snapshot()
    return db.topic("t") if name == "Topic" else db.topic("t").writer()


def called(random: Random, db: planstep.Engine, kind: Any, name: str) -> str:
    """One call with odd arguments; what is wrong with how it ended, or ""."""
    method: Callable[..., Any] = getattr(kind, name)
    try:
        parameters = list(inspect.signature(method).parameters.values())[1:]
    except (TypeError, ValueError):
        return ""
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if not names:
        return ""
    wrong = set(random.sample(names, min(len(names), random.choice([1, 1, 2]))))
    given = {
        p.name: odd(random) if p.name in wrong else _RIGHT.get(p.name, p.default)
        for p in parameters
        if p.name in wrong or p.default is p.empty
    }
    for waits, most in (
        ("timeout", 0.05),
        ("deadline", 0.05),
        ("attempts", 2),
        ("partitions", 40),
        ("shards", 40),
    ):
        if isinstance(given.get(waits), (int, float)) and given[waits] > most:
            given[waits] = most  # it would wait, or make so many, rightly
    if name == "create_topic" or name == "create_table":
        given.setdefault("exist_ok", True)
    held = None
    try:
        held = _made(db, kind)
        ended = getattr(held, name)(**given)
        if inspect.isgenerator(ended):
            next(ended, None)
    except REFUSALS as error:
        if isinstance(error, UnicodeError):
            return _said(kind, name, given, error)
        return "" if str(error) else _said(kind, name, given, error)
    except BaseException as error:
        return _said(kind, name, given, error)
    finally:
        _ended(held, db)
    return ""


def _ended(held: Any, db: planstep.Engine) -> None:
    if held is None or held is db:
        return
    try:
        if isinstance(held, planstep.Transaction):
            held.rollback()
        elif hasattr(held, "close"):
            held.close()
    except REFUSALS:
        pass


def _said(kind: Any, name: str, given: dict[str, Any], error: BaseException) -> str:
    try:
        arguments = f"{given!r:.150}"
    except Exception:  # a number of thousands of digits has no text
        arguments = str(sorted(given))
    return f"{kind.__name__}.{name}({arguments}): {type(error).__name__}: {error!s:.150}"
