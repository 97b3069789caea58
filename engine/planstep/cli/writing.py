"""`planstep topic write` writes arguments, a file or stdin to a topic, in transactions of bounded size.

    lines ─ 10,000, or 8 MiB, or nothing more for 50 ms ─▶ records ─▶ one transaction ─▶ progress

So a large file needs little memory, and lines that arrive one by one are visible at once.

Next: redrive.py.
"""

import contextlib
import json
import os
import select
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from ..api.columns.batch import counted
from ..api.limits import AHEAD_BYTES, RECORD_BYTES_MAX
from ..errors import PlanstepError, RecordTooLarge, Undetermined
from .names import TopicName
from .output import Json, Store, existing, print_result, progress, say
from .values import headers as headers_of

_LINES = 10_000
_LINGER = 0.05
_CHUNK = 1 << 20
_LINE_BYTES_MAX = 4 * RECORD_BYTES_MAX  # a record as JSON is longer than as stored
_FIELDS = ("value", "key", "headers")
_IGNORED = ("partition", "offset", "timestamp_ms")  # `topic read --jsonl` prints these


_Record = tuple[Any, str | bytes | None, dict[str, str | bytes] | None]
"""A record's value, key and headers."""


def write(
    store: Store,
    topic: TopicName,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="VALUE", help="Values; lines of stdin if none."),
    ] = None,
    *,
    key: Annotated[
        str | None, typer.Option(help="Key for records that have none of their own.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A header for records that have none; may be repeated."
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(help="Into this partition, whatever the key.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="One record per line of a file.")] = None,
    as_lines: Annotated[
        bool, typer.Option("--jsonl", help='Each is a JSON object: {"key": "u1", "value": "a"}.')
    ] = False,
    as_json: Json = False,
) -> None:
    """Write records: the values given, or one for each line of a file or of stdin.

    A line is a value in the topic's format: JSON for json and msgpack. With --jsonl it is an
    object with value and, optionally, key and headers; the other fields of `topic read --jsonl` are ignored.
    Lines are written as they arrive, in transactions of at most 10,000 records. After an error the
    command says how many records are written.

    JSON: topic, records (how many), transactions, place (step and n, of the last one; null in
    modes kafka and pulsar).

    Examples:

        printf 'a\\nb\\n' | planstep topic write shop.planstep clicks --key u1

        planstep topic write shop.planstep clicks --jsonl --file clicks.jsonl
    """
    if values and file is not None:
        raise typer.BadParameter("give values or a file, not both", param_hint="--file")
    common = headers_of(header)
    done = transactions = 0
    place = None
    with contextlib.ExitStack() as opened:
        if values:
            batches = iter([[os.fsencode(value) for value in values]])
        else:
            batches = _batches(_input(file, opened))
        db = opened.enter_context(existing(store, read_only=False))
        form = db.topic(topic).format
        tell = opened.enter_context(progress("records"))
        try:
            for lines in batches:
                records = [
                    _record(form, line, done + n, key, common, as_lines)
                    for n, line in enumerate(lines, 1)
                ]
                texts, keys, headers = zip(*records, strict=True)
                with db.transaction() as tx:
                    tx.write_batch(topic, texts, keys, headers, partition)
                done, transactions = done + len(records), transactions + 1
                place = tx.commit.place if db.context.runtime.hooks.has_places else None
                tell("writing", done, None)
        except KeyboardInterrupt:
            say(f"interrupted: at least {done} records are written")
            raise typer.Exit(130) from None
        except Undetermined as error:
            error.add_note(f"at least {done} records are written")
            raise
        except Exception as error:
            error.add_note(f"{done} records are written" if done else "nothing was written")
            raise
    at = "" if place is None else f" at place {tuple(place)}"
    result = {"topic": topic, "records": done, "transactions": transactions, "place": place}
    print_result(result, as_json, f"{counted(done, 'record')} written{at}")


def _record(
    form: str, line: bytes, number: int, key: str | bytes | None, headers: Any, as_lines: bool
) -> _Record:
    if not as_lines:
        return _value(form, line, number), key, headers
    fields = _json(line, number)
    if not isinstance(fields, dict) or "value" not in fields:
        raise PlanstepError(f'line {number} is no object with a "value": {line[:60]!r}')
    for name in fields:
        if name not in _FIELDS and name not in _IGNORED:
            close = get_close_matches(name, _FIELDS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(_FIELDS)}"
            raise PlanstepError(f"line {number} has a field {name!r}{hint}")
    value, own = fields["value"], fields.get("headers")
    if form == "bytes":
        text = _text(value, number, "value")
        value = text.encode() if isinstance(text, str) else text
    elif form == "utf8" and not isinstance(value, str):
        raise PlanstepError(f"line {number}: the topic's format is utf8, and the value is no text")
    if fields.get("key") is not None:
        key = _text(fields["key"], number, "key", form == "bytes")
    if own:
        if not isinstance(own, dict):
            raise PlanstepError(f"line {number}: headers is an object of texts")
        headers = {name: _text(text, number, f"header {name!r}") for name, text in own.items()}
    return value, key, headers


def _text(value: Any, number: int, what: str, hexed: bool = True) -> str | bytes:
    """Returns text as it is; where `hexed`, "hex:ff00", as commands print bytes, becomes bytes."""
    if not isinstance(value, str):
        raise PlanstepError(f"line {number}: {what} is text, or hex behind hex:, not {value!r:.40}")
    if not hexed or not value.startswith("hex:"):
        return value
    try:
        return bytes.fromhex(value[4:])
    except ValueError:
        raise PlanstepError(f"line {number}: {what} is no hex behind hex:") from None


def _value(form: str, line: bytes, number: int) -> object:
    """Converts a line to the value of the topic's format: bytes, text, or the JSON in it."""
    if form == "bytes":
        return line
    if form != "utf8":
        return _json(line, number, f", and the topic's format is {form}")
    try:
        return line.decode()
    except ValueError as error:
        raise PlanstepError(
            f"line {number} is no UTF-8, and the topic's format is utf8: {error}"
        ) from None


def _json(line: bytes, number: int, why: str = "") -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PlanstepError(f"line {number} is no JSON{why}: {error}") from None


def _input(file: Path | None, opened: contextlib.ExitStack) -> IO[bytes]:
    if file is not None:
        return opened.enter_context(file.open("rb"))
    if sys.stdin is None:
        raise PlanstepError("nothing to write: no values are given, and stdin is closed")
    if sys.stdin.isatty():
        say("one record a line; Ctrl-D ends")
    return sys.stdin.buffer


def _batches(source: IO[bytes]) -> Iterator[list[bytes]]:
    """Groups lines: a group ends when it is full, or when no line arrives for 50 ms."""
    held: list[bytes] = []
    room = AHEAD_BYTES
    for line in _lines(source.fileno()):
        if line is not None:
            held.append(line)
            room -= len(line)
        if held and (line is None or len(held) == _LINES or room <= 0):
            yield held
            held, room = [], AHEAD_BYTES
    if held:
        yield held


def _lines(fd: int) -> Iterator[bytes | None]:
    """Yields lines without their line ends, and None when no input arrives for 50 ms."""
    rest = bytearray()
    while True:
        if not select.select([fd], [], [], _LINGER)[0]:
            yield None
        chunk = os.read(fd, _CHUNK)
        if not chunk:
            break
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield from bytes(rest + head).split(b"\n")
            rest = bytearray(tail)
        else:
            rest += chunk
            if len(rest) > _LINE_BYTES_MAX:
                raise RecordTooLarge("a line is longer than any record may be (16 MiB)")
    if rest:
        yield bytes(rest)
