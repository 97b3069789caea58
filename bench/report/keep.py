"""Keeps the results of a comparison in the repository, and writes its verdicts into the README.

    DIR/results.json ─▶ trimmed ─▶ docs/results/NAME.json ─┬▶ README.md: a row for each question
    DIR/report.html  ─▶ docs/results/NAME.html             └▶ docs/results/README.md: a row for each kept comparison

A release keeps those of a machine that did nothing else, of a thorough run if there is time for one:

    planstep compare --thorough --peers --out build/results
    python -m planstep.bench.report.keep build/results 0.1.0

It refuses results of a machine that was busy with other work, unless --busy says to keep them; the tables then say
so. They also say the plan. They lie between comments, and a test compares them with what is kept here.

Left out of the JSON: traces, addresses of servers, settings of systems, single steps, runs of the search, and
intervals of p95 and p99.9. docs/compare.md has the fields.

Next: html/answers.py.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..compare.baseline import read
from ..compare.progress import in_minutes
from ..compare.ranking import entries
from ..compare.result_folder import PAGE, RESULTS, replace_file
from ..compare.systems import ENTRIES
from ..compare.verdicts import OWN
from .html.answers import Answer, answers
from .text.text_report import warnings

KEPT = Path("docs") / "results"
README = "README.md"
VERDICTS, RESULTS_TABLE = "verdicts", "results"
"""Names of the comments around the tables."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TRIMMED = ("settings", "steps", "traces", "rate_search", "problems")
"""Fields of an entry that are left out: they are empty."""
_OTHERS = (".p95", ".p99_9", ".max")
"""Ends of names whose interval is left out."""
_DURABILITY = "full"
_MARKS = {"better": "**{}**", "level": "{} *"}
_LINK = KEPT.as_posix()


def keep(folder: Path, name: str, repository: Path, *, busy: bool = False) -> list[Path]:
    """Keeps a comparison's results under a name; returns the files that were written.

    `busy` keeps those of a machine that was busy with other work, too; else they are a ValueError. So is a folder
    without a whole, verified comparison and its report, and a `repository` that has no place for it.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name: use letters, digits, points and hyphens")
    summary = read(folder)
    page = folder / PAGE
    if summary["interrupted"] or not summary["verified"]:
        raise ValueError(f"{folder} holds a comparison that was interrupted or did not verify")
    if _was_busy(summary) and not busy:
        raise ValueError(
            f"{folder} holds figures of a busy machine: {summary['machine']['load']['sentence']} "
            "--busy keeps them all the same, and says so"
        )
    if not page.exists():
        raise ValueError(f"{page} is not there; python -m planstep.bench.report.html makes it")
    readme = repository / README
    if not (repository / KEPT / README).exists():
        raise ValueError(f"{repository} is no checkout of Planstep: it has no {KEPT / README}")
    date = datetime.fromtimestamp((folder / RESULTS).stat().st_mtime, UTC).date().isoformat()
    small = trimmed(summary, name, date)
    table = verdict_table(small)
    kept = repository / KEPT / f"{name}.json"
    lines = (f"{json.dumps(field)}: {json.dumps(value)}" for field, value in small.items())
    replace_file(kept, "{\n" + ",\n".join(lines) + "\n}\n")
    text = page.read_text(encoding="utf-8").replace(summary["machine"]["kernel"], _kernel(summary))
    replace_file(kept.with_suffix(".html"), text)
    replace_file(readme, with_table(readme, VERDICTS, table))
    index = repository / KEPT / README
    replace_file(index, with_table(index, RESULTS_TABLE, results_table(index.parent)))
    return [kept, kept.with_suffix(".html"), readme, index]


def trimmed(summary: Mapping[str, Any], name: str, date: str) -> dict[str, Any]:
    """Returns what is kept of a summary; `kept` says its name, date, plan, and if the machine was busy."""
    small: dict[str, Any] = json.loads(json.dumps(summary))
    for *_, entry in entries(small["systems"]):
        entry |= {field: type(entry[field])() for field in _TRIMMED if entry[field]}
        entry["range"] = {n: ends for n, ends in entry["range"].items() if not n.endswith(_OTHERS)}
    small["machine"]["kernel"] = _kernel(summary)
    small["plan"]["order"] = []
    small["spark"] |= {"jobs": [], "checks": []}
    for server in small.get("servers", ()):
        server.pop("address", None)  # it names a folder of that machine
    small["report"] = {"html": f"{name}.html", "png": [], "traces": None}
    kept = {"name": name, "date": date, "plan": _plan(summary), "busy": _was_busy(summary)}
    return small | {"since": None, "kept": kept}


def _plan(summary: Mapping[str, Any]) -> str:
    """Returns the plan of a comparison in words, as in "thorough, with peers"."""
    asked = summary["settings"]
    name = "quick" if asked["quick"] else "thorough" if asked["thorough"] else "default"
    own = "" if asked["workloads"] is None else f", only {', '.join(asked['workloads'])}"
    peers = any(ENTRIES[name].peer for name in summary["systems"] if name in ENTRIES)
    return f"{name}{own}{', with peers' if peers else ''}"


def _was_busy(summary: Mapping[str, Any]) -> bool:
    """Returns True if other work made the figures doubtful; results without a load are taken as good."""
    return bool(warnings(dict(summary)))


def _kernel(summary: Mapping[str, Any]) -> str:
    """Returns the kernel's name and version, without the name of its build: "Linux 6.1"."""
    found = re.match(r"\S+ \d+(\.\d+)?", summary["machine"]["kernel"])
    return found.group() if found else str(summary["machine"]["kernel"])


def load(file: Path) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return kept


def with_table(page: Path, name: str, table: str) -> str:
    """Returns a page's text with this table between its comments. ValueError if it has no such comments."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page} has no place for a table: {begin} … {end}")
    return f"{before}{begin}\n{table}\n{end}{after}"


def verdict_table(kept: Mapping[str, Any]) -> str:
    """Returns the verdicts at durability full as Markdown: a row for each question, a column for each system."""
    found = answers(dict(kept))
    asked = [
        (question.words, answer)
        for question in (found.questions if found else ())
        for answer in question.answers
        if answer.durability == _DURABILITY
    ]
    if not any(answer.ratios for _, answer in asked):
        raise ValueError(
            f"no question has a verdict at durability {_DURABILITY}: run it with --repeat 3"
        )
    names = {ratio.system: ratio.name for _, answer in asked for ratio in answer.ratios}
    others = [name for name in ENTRIES if name in names and name != OWN]
    rows: list[Sequence[str]] = [
        (f"durability {_DURABILITY}", names.get(OWN, OWN), *(names[name] for name in others)),
        ("---",) * (2 + len(others)),
        *((words, *_cells(answer, others)) for words, answer in asked),
    ]
    about = (
        "The first figure is this engine's. The others are ratios to it: median (lowest–highest) of the rounds. "
        "**Bold**: that system is ahead of this engine. An asterisk: it is not clear who is ahead."
    )
    of = kept["kept"]
    source = (
        f"They are from [a comparison of {of['date']}]({_LINK}/{of['name']}.html) on {_machine(kept)} "
        f"(plan: {of['plan']}). "
        f"[All its figures]({_LINK}/{of['name']}.json) are [kept]({_LINK}/{README})."
    )
    busy = ["The machine was busy with other work, so read it with care."] if of["busy"] else []
    return "\n".join([*map(_row, rows), "", about, source, *busy])


def _cells(answer: Answer, others: Sequence[str]) -> Iterator[str]:
    by_system = {ratio.system: ratio for ratio in answer.ratios}
    own = by_system.get(OWN)
    yield f"{own.value} {answer.figure}" if own else "no verdict"
    for name in others:
        ratio = by_system.get(name)
        text = ratio.ratio if ratio else "–"
        yield _MARKS.get(ratio.side if ratio else "", "{}").format(text)


def results_table(folder: Path) -> str:
    """Returns a table of the comparisons that are kept in a folder, the latest first."""
    every = sorted(
        map(load, folder.glob("*.json")), key=lambda of: of["kept"]["date"], reverse=True
    )
    rows: list[Sequence[str]] = [
        ("results", "report", "version", "made", "machine", "plan", "other work", "runs", "took")
    ]
    rows.append(("---",) * len(rows[0]))
    for kept in every:
        name = kept["kept"]["name"]
        rows.append(
            (
                *(f"[{name}.json]({name}.json)", f"[{name}.html]({name}.html)"),
                *(kept["machine"]["planstep"], kept["kept"]["date"], _machine(kept)),
                *(kept["kept"]["plan"], "too much" if kept["kept"]["busy"] else "little"),
                *(str(kept["plan"]["done"]), in_minutes(kept["seconds"])),
            )
        )
    return "\n".join(map(_row, rows))


def _machine(kept: Mapping[str, Any]) -> str:
    machine = kept["machine"]
    memory = f"{machine['memory_mb'] / 1000:.0f} GB"
    return f"{machine['cpus']} × {machine['cpu_model']}, {memory}, {machine['filesystem'] or 'unknown file system'}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Runs python -m planstep.bench.report.keep [--busy] DIR NAME, in a checkout of the repository."""
    parser = argparse.ArgumentParser(
        prog="python -m planstep.bench.report.keep", description="Keeps a comparison's results."
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="what --out named")
    parser.add_argument("name", metavar="NAME", help="the version, such as 0.1.0")
    parser.add_argument(
        "--busy", action="store_true", help="keep also figures of a machine that was busy"
    )
    asked = parser.parse_args()
    try:
        written = keep(asked.folder, asked.name, Path(), busy=asked.busy)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    print(*written, sep="\n")


if __name__ == "__main__":
    main()
