"""Writes the caveats: settings, the runs that were left out and why, the limits of the figures.

Next: blocks.py.
"""

from collections.abc import Mapping
from typing import Any

from ...compare.ranking import entries
from ...compare.systems import MODES, label, original
from ...compare.systems.base import SETTING_KEYS
from .blocks import Block, Bullets, Command, Section, Table, section

_NAME_MAX = 32


def settings(summary: dict[str, Any], name_max: int | None = _NAME_MAX) -> list[Section]:
    """Returns the command that repeats the comparison, and each system's settings.

    Each setting has its default in the product that the mode follows, and its name there, shortened to `name_max`.
    """
    *_, name_there, default_there = SETTING_KEYS
    blocks: list[Block] = [Command("To repeat the comparison:", command(summary["settings"]))]
    for name, by_workload in summary["systems"].items():
        listed = (entry["settings"] for *_, entry in entries({name: by_workload}))
        rows = [
            (s["name"], str(s["value"]), str(s[default_there]), _elide(s[name_there], name_max))
            for s in next(filter(None, listed), [])
            if s["name"] not in _ASKED
        ]
        if rows:
            columns = (label(name), "here", f"{original(name)}'s default", "its name there")
            blocks.append(Table(columns, rows, left=4))
    return [section("Settings", *blocks)]


_ASKED = ("durability", "placement", "hosts", "rtt")
"""Settings that the tables' titles, or the command, already show."""


def command(settings: dict[str, Any], without: Mapping[str, Any] | None = None) -> str:
    """Returns the command with every option that had a value, defaults too, since defaults may change.

    `without`: settings that are left out where they are the same.
    """
    words = ["planstep compare"]
    for name, option in _OPTIONS.items():
        if name not in settings:  # of an older version, which had no such option
            continue
        value = settings[name]
        if without is not None and without[name] == value:
            continue
        if name == "find_rate" and value is False:
            words.append("--no-find-rate")
        elif isinstance(value, bool):
            words += [option] * value
        elif isinstance(value, list):
            words.append(f"{option} {','.join(value)}")
        elif value is not None or name == "rate_mb_s":
            text = f"{value:.9g}" if isinstance(value, float) else str(value or "max")
            words.append(f"{option} {text}")
    return " ".join(words)


_OPTIONS = {
    "workloads": "--workload",
    "systems": "--systems",
    "rate_mb_s": "--rate",
    "record_size": "--record-size",
    "partitions": "--partitions",
    "commit_interval_s": "--commit-interval",
    "duration_s": "--duration",
    "hosts": "--hosts",
    "placement": "--placement",
    "durability": "--durability",
    "rtt_ms": "--rtt",
    "workers": "--workers",
    "repeat": "--repeat",
    "peers": "--peers",
    "quick": "--quick",
    "thorough": "--thorough",
    "demo": "--demo",
    "seed": "--seed",
    "find_rate": "--find-rate",
}


def _elide(name: str, most: int | None) -> str:
    if most is None or len(name) <= most:
        return name
    return f"{name[: most // 2]}…{name[1 - most // 2 :]}"


def left_out(summary: dict[str, Any]) -> list[Section]:
    lines = [
        f"{workload}, {label(name)}: {entry['reason']}"
        for name, workload, _, _, entry in entries(summary["systems"])
        if entry["status"] == "impossible"
    ]
    lines += [f"{omission['what']}: {omission['why']}" for omission in summary["plan"]["left_out"]]
    unique = list(dict.fromkeys(lines))
    return [section("What was not possible, or left out", Bullets(unique))] if unique else []


def limits(summary: dict[str, Any]) -> Section:
    rtt = summary["settings"]["rtt_ms"]
    network = (
        f"There is no network. A wait of {rtt:g} ms for each round trip stands for it, for any number of bytes."
        if rtt
        else "There is no network, so a message takes no time. --rtt MS adds a delay."
    )
    return section(
        "What this cannot show",
        Bullets(
            [
                *(mode.limit for mode in MODES if mode.limit),
                "There is one machine, one disk and no replica. The figures say nothing about scaling or "
                "fail-over.",
                network,
                "All code is Python, and the generator and the readers share the processors with the system. So "
                "ratios say more than absolute figures.",
                "reshard's workers commit in turn, spread over the interval, and all write to all "
                f"partitions.{''.join(f' {mode.crowded}' for mode in MODES if mode.crowded)}",
                "Runs take seconds, not days. They show no growth over time, and no compaction of weeks of data.",
            ]
        ),
    )
