"""Defines the arguments that are names, which the shell completes from the store.

    planstep topic read shop.planstep cl<TAB> ─▶ opens the store read-only, 1 s at most ─▶ clicks

An error or a slow store completes nothing, so that completion never disturbs.

Next: topics.py.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

import planstep

from ..errors import UnknownName
from ..runtime.store_path import is_store

_SECONDS_MAX = 1.0


def _complete(
    ctx: typer.Context, begin: str, names: Callable[["planstep.Engine"], Iterable[str]]
) -> list[str]:
    matches: list[str] = []

    def read_names() -> None:
        try:
            store = Path(str(ctx.params["store"]))
            if is_store(store):
                with planstep.open(store, create=False, read_only=True) as db:
                    matches.extend(name for name in names(db) if name.startswith(begin))
        except Exception:
            return  # nothing to offer

    logging.disable()
    try:
        thread = threading.Thread(target=read_names, daemon=True)
        thread.start()
        thread.join(_SECONDS_MAX)
        return list(matches)
    finally:
        logging.disable(logging.NOTSET)


def _topics(ctx: typer.Context, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, lambda db: db.topics())


def _tables(ctx: typer.Context, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, lambda db: db.tables())


def _consumers(ctx: typer.Context, incomplete: str) -> list[str]:
    topic = ctx.params.get("topic")
    return _complete(ctx, incomplete, lambda db: db.topic(str(topic)).consumers()) if topic else []


TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Its name.", autocompletion=_topics)
]
NewTopic = Annotated[str, typer.Argument(metavar="TOPIC", help="Its name.")]
TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="Its name.", autocompletion=_tables)
]
NewTable = Annotated[str, typer.Argument(metavar="TABLE", help="Its name.")]
ConsumerName = Annotated[
    str, typer.Argument(metavar="NAME", help="The consumer's name.", autocompletion=_consumers)
]
MaybeConsumer = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="One consumer only.", autocompletion=_consumers),
]
NewConsumer = Annotated[str, typer.Argument(metavar="NAME", help="The consumer's name.")]


def consumer_of(topic: "planstep.Topic", name: str) -> "planstep.ConsumerDescription":
    """Describes a consumer that was created or has consumed. UnknownName suggests the nearest name."""
    known = topic.consumers()
    if name not in known:
        nearest = get_close_matches(name, list(known), n=1)
        raise UnknownName("consumer", name, nearest[0] if nearest else None)
    return known[name]
