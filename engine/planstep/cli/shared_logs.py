"""Looks at shared logs: `planstep check-log` races processes on a server, `planstep replicate` has the rest.

Next: stats.py.
"""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ..runtime.replica_status import PRICES_OF, status_of
from ..runtime.unshipped import lost_turns
from ..shared.check_log import CONTENDERS, check_log
from ..shared.registry import scheme_of
from ..shared.settings import Replicate
from .command import Command
from .output import Json, existing, interruptible, print_json, print_rows, progress, say

replicate = typer.Typer(
    help="Replicate a store, end that, or look at its shared log.\n\n"
    "planstep replicate STORE URL: begin a shared log with the turns that STORE has.\n\n"
    "planstep replicate STORE --stop: make STORE an ordinary store again.\n\n"
    "planstep replicate start --help has its options.",
    subcommand_metavar="STORE URL | COMMAND [ARGS]...",
    no_args_is_help=True,
)
Snapshots = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where snapshots are, if the log is in no object store."),
]

_NOT_CHECKED = (
    "answers that get lost, power loss, and a server's machines that are cut off from one another"
)


def check(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="The shared log, as s3://bucket/shop; it need not be there yet."
        ),
    ],
    seconds: Annotated[float, typer.Option(min=1, metavar="N", help="Race for so long.")] = 120,
    as_json: Json = False,
) -> None:
    """Check whether a server can carry the shared log of a replicated store.

    Five processes contend for one slot after another. Each slot must get one
    winner, whom all of them see, and so must a sixth process, at once and in
    lists. Then all slots are read again. It works in a log of its own behind
    URL (a topic beside it, for Kafka), which it removes, and a log that is there
    already stays as it is.

    A log in use gets slower meanwhile. A slot takes about sixteen requests, and
    on a cloud each of them costs.

    The verdict is passed (exit 0), refused (1: do not use this server), or
    undecided (1: the server did not answer for 30 seconds, or was too slow).
    Not checked are lost answers, power loss, and a server's machines that are
    cut off from one another.

    JSON: url, verdict, reason, slots, large_slots (of 4 MiB), lists,
    append_ms_p50 and append_ms_p99 (null without a slot), seconds, contenders,
    not_checked, left (the URL of what could not be removed, or null).

    Example: planstep check-log s3://bucket/shop --seconds 30
    """
    with (
        interruptible("its log was removed, if the server let it"),
        progress("seconds", 10) as tell,
    ):
        report = check_log(url, seconds, tell)
    if report.left is not None:
        say(f"{report.left} could not be removed: remove it")
    if as_json:
        more: dict[str, Any] = {"seconds": seconds, "contenders": len(CONTENDERS)}
        print_json({"url": url, **report._asdict(), **more, "not_checked": _NOT_CHECKED})
    else:
        print(f"{report.verdict}: {report.reason}")
        if report.slots:
            print(
                f"an append took {report.append_ms_p50} ms (p50), {report.append_ms_p99} ms (p99)"
            )
        print(f"not checked: {_NOT_CHECKED}")
    if report.verdict != "passed":
        raise typer.Exit(1)


@replicate.command("status", cls=Command)
def status(
    url: Annotated[str, typer.Argument(metavar="URL", help="The shared log, as s3://bucket/shop.")],
    snapshots: Snapshots = None,
    as_json: Json = False,
) -> None:
    """Show whose a replicated store is, and what its shared log holds and costs.

    It asks the log alone, and disturbs nobody. It lists all objects there, a
    request for each thousand, and gets a few. Dollars are list prices of S3
    Standard, Google Cloud Storage and Azure, in their first regions.

    JSON: url, store_id, mode, term, owner (who, since, closed; null before the
    first one), end (the last turn), floor (the first that is not trimmed),
    snapshots (list of turn, made, bytes, the newest first), objects, bytes,
    puts_per_day (of this term, null within its first hour and once it is
    closed), usd_per_month (puts, bytes), prices_of. Null where it is not known.

    Example: planstep replicate status s3://bucket/shop
    """
    found = status_of(Replicate(url, snapshots=snapshots, log_timeout=10))
    puts, held = found.dollars_per_month(scheme_of(url))
    owner = None
    if found.who is not None and found.since is not None:
        owner = {"who": found.who, "since": _time(found.since), "closed": found.closed}
    made = [
        {"turn": turn, "made": _time(seconds), "bytes": size}
        for turn, seconds, size in found.snapshots
    ]
    if as_json:
        fields = {
            **{"url": url, "store_id": found.store_id, "mode": found.mode, "term": found.term},
            **{"owner": owner, "end": found.end, "floor": found.floor, "snapshots": made},
            **{"objects": found.objects, "bytes": found.bytes},
            **{"puts_per_day": found.puts_per_day, "prices_of": PRICES_OF},
            "usd_per_month": {"puts": puts, "bytes": held},
        }
        print_json(fields)
        return
    rows: list[tuple[str, Any]] = [("store", found.store_id), ("mode", found.mode)]
    if owner is not None:
        rows += [
            ("closed by" if found.closed else "owner", owner["who"]),
            ("since", owner["since"]),
        ]
    rows += [("term", found.term), ("last turn", found.end), ("floor", found.floor)]
    rows += [
        (f"snapshot of turn {one['turn']}", f"{one['made']}, {one['bytes']:,} bytes")
        for one in made
    ]
    rows += [("objects", found.objects), ("bytes", found.bytes)]
    if found.puts_per_day is not None:
        rows.append(("puts a day", f"{found.puts_per_day:,.0f}{_dollars(puts)}"))
    if held is not None:
        rows.append(("bytes a month", _dollars(held).removeprefix(", ")))
    print_rows(
        url, ["what", "value"], [[what, "–" if value is None else value] for what, value in rows]
    )


@replicate.command("lost", cls=Command)
def lost(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder that was set aside: STORE.term-N.")
    ],
    as_json: Json = False,
) -> None:
    """List the commits that only a folder has which was set aside.

    In mode async a machine answers before the shared log has a commit. If another
    one takes the store over before that, the next opening renames the folder to
    STORE.term-N, and begins from the log. What it lists was answered, and is not in
    the store: do it again, or tell those who were told. FOLDER opens read_only=True.

    JSON: path, term (of its owner), certain (false where the log is trimmed and may
    have some of the turns), turns (list of turn, bytes, transactions, changes, and by
    name records of topics and rows of tables), records, rows (all of them).

    Example: planstep replicate lost shop.planstep.term-3
    """
    with existing(folder) as db:
        found = lost_turns(folder, db.context.runtime.names, db.mode)
    records: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for turn in found.turns:
        records.update(turn.records)
        rows.update(turn.rows)
    if as_json:
        turns = [turn._asdict() for turn in found.turns]
        fields = {"path": str(folder), "term": found.term, "certain": found.certain}
        print_json({**fields, "turns": turns, "records": records, "rows": rows})
        return
    for turn in found.turns:
        print(f"turn {turn.turn}: {', '.join(turn.transactions) or 'no transaction'}")
        for change in turn.changes:
            print(f"    {change}")
    if not found.certain:
        say("the shared log may have some of these: it is trimmed behind them")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _dollars(amount: float | None) -> str:
    return "" if amount is None else f", ${amount:,.2f} a month (list price of {PRICES_OF})"
