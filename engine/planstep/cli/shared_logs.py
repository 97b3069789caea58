"""`planstep check-log` races processes on the server of a shared log. Next: stats.py."""

from typing import Annotated, Any

import typer

from ..shared.check_log import CONTENDERS, check_log
from .output import Json, interruptible, print_json, progress, say

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
    URL, which it removes, and a log that is there already stays as it is.

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
