"""`planstep topic redrive` writes dead letters back to the topics that they came from.

    letters, up to the end at the start ─ as one consumer ─▶ their topics, without the headers of `process`

Each transaction consumes letters and writes them, so each letter goes back once, whatever ends meanwhile. One that
fails again is a new letter, behind that end: so the command ends though the service goes on failing.

Next: consumers.py.
"""

from collections import Counter
from typing import Annotated, Any

import typer

import planstep

from ..api.columns.batch import ReadBatch, counted
from ..errors import PlanstepError, UnknownName
from .names import TopicName
from .output import (
    DryRun,
    Json,
    Store,
    existing,
    interruptible,
    print_json,
    print_rows,
    progress,
)

_RECORDS = 1000
_FROM = "planstep-topic"
_ADDED = (
    _FROM,
    *("planstep-partition", "planstep-offset", "planstep-consumer"),
    *("planstep-attempt", "planstep-error"),
)
"""The headers that process has added to a letter."""


def redrive(
    store: Store,
    topic: TopicName,
    *,
    to: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Into this topic, wherever they came from."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many letters.")] = None,
    consumer: Annotated[
        str, typer.Option(metavar="NAME", help="The consumer whose position says which are done.")
    ] = "redrive",
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Write dead letters back to the topics they came from, each once, while the service runs.

    TOPIC has the letters, which stay there. The next redrive goes on behind the last one. A letter goes back with
    its value, key and own headers, so that all consumers of its topic read it again. If it fails again, that is
    another letter.

    JSON: topic, dry_run, records (how many), topics (list of topic, records).

    Example: planstep topic redrive shop.planstep orders-failed --dry-run
    """
    moved: Counter[str] = Counter()
    with (
        existing(store, read_only=dry_run) as db,
        interruptible("what is written is consumed: go on with the same command"),
        progress("letters") as tell,
    ):
        letters = db.topic(topic)
        for partition, begin, end in _parts(letters, consumer):
            while begin < end and (limit is None or moved.total() < limit):
                most = min(_RECORDS, end - begin)
                most = most if limit is None else min(most, limit - moved.total())
                if dry_run:
                    batch = letters.read({partition: begin}, max_records=most)
                    done = Counter(_targets(db, letters, batch, to))
                else:
                    batch, done = _moved(db, letters, consumer, partition, most, to)
                if not batch:
                    break
                moved, begin = moved + done, batch.ends[partition]
                tell("redriving", moved.total(), limit)
    rows = sorted(moved.items())
    if as_json:
        topics = [{"topic": name, "records": n} for name, n in rows]
        print_json({"topic": topic, "dry_run": dry_run, "records": moved.total(), "topics": topics})
    else:
        title = counted(moved.total(), "letter") + (" would go" if dry_run else " went") + " back"
        print_rows(f"{topic}: {title}", ["topic", "records"], [list(row) for row in rows])


def _parts(letters: "planstep.Topic", consumer: str) -> list[tuple[int, int, int]]:
    """Returns (partition, where the consumer is, where the log ends now)."""
    ends = {part.partition: part.end for part in letters.describe().partitions}
    return [(p, at, ends[p]) for p, at in letters.position(consumer).items()]


def _moved(
    db: "planstep.Engine",
    letters: "planstep.Topic",
    consumer: str,
    partition: int,
    most: int,
    to: str | None,
) -> tuple[ReadBatch, Counter[str]]:
    """Moves the next letters in one transaction."""

    def move(tx: "planstep.Transaction") -> tuple[ReadBatch, Counter[str]]:
        batch = tx.read(letters.name, consumer, partition=partition, max_records=most)
        targets = _targets(db, letters, batch, to)
        for target in dict.fromkeys(targets):
            letters_to = [one for one, its in zip(batch, targets, strict=True) if its == target]
            tx.write_batch(
                target,
                [one.value for one in letters_to],
                [one.key for one in letters_to],
                [_own(one.headers) for one in letters_to],
            )
        return batch, Counter(targets)

    return db.run(move)


def _own(headers: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in headers.items() if name not in _ADDED}


def _targets(
    db: "planstep.Engine", letters: "planstep.Topic", batch: ReadBatch, to: str | None
) -> list[str]:
    """Returns the topic of each letter. PlanstepError names one that came from nowhere, or from no topic now."""
    topics = [to or one.headers.get(_FROM) for one in batch]
    for one, name in zip(batch, topics, strict=True):
        if name is None:
            raise PlanstepError(
                f"offset {one.offset} of partition {one.partition} has no header {_FROM}, so it is no dead "
                "letter: --to names its topic"
            )
    for name in dict.fromkeys(map(str, topics)):
        if name == letters.name:
            raise PlanstepError(f"topic {name} has the letters: they cannot go back to it")
        try:
            form = db.topic(name).format
        except UnknownName as error:
            error.add_note("--to names another topic for the letters")
            raise
        if form != letters.format:
            raise PlanstepError(
                f"topic {name} has format {form}, and the letters {letters.format}: --to names another topic"
            )
    return [str(name) for name in topics]
