"""Writes the caveats: settings, the runs that were left out and why, the limits of the figures.

Next: blocks.py.
"""

from typing import Any

from ...compare.ranking import entries
from ...compare.systems import MODES, label, original
from ...compare.systems.base import SETTING_KEYS
from .blocks import Block, Bullets, Command, Section, Table, section

_NAME_MAX = 32


def fineprint(summary: dict[str, Any]) -> list[Section]:
    return [*settings(summary), *left_out(summary), limits(summary)]


def settings(summary: dict[str, Any], name_max: int | None = _NAME_MAX) -> list[Section]:
    """Returns the command that repeats the comparison, and each system's settings.

    Each setting has its default in the product that the mode follows, and its name there, shortened to `name_max`.
    """
    *_, name_there, default_there = SETTING_KEYS
    blocks: list[Block] = [Command("The same again:", command(summary["settings"]))]
    for name, by_workload in summary["systems"].items():
        listed: list[dict[str, Any]] = next(
            (
                entry["settings"]
                for system, _, _, _, entry in entries({name: by_workload})
                if entry["settings"]
            ),
            [],
        )
        rows = [
            (
                s["name"],
                str(s["value"]),
                str(s[default_there]),
                _elided(s[name_there], name_max),
            )
            for s in listed
            if s["name"] not in _ASKED
        ]
        if rows:
            columns = (label(name), "here", f"{original(name)}'s default", "and its name there")
            blocks.append(Table(columns, rows, left=4))
    return [section("Settings", *blocks)]


_ASKED = ("durability", "placement", "hosts", "rtt")
"""Settings that the tables' titles, or the command, already show."""


def command(settings: dict[str, Any]) -> str:
    """Returns the command with every option that had a value, defaults too, since defaults may change."""
    said = ["planstep compare"]
    for name, option in _OPTIONS.items():
        value = settings[name]
        if name == "find_rate" and value is False:
            said.append("--no-find-rate")
        elif isinstance(value, bool):
            said += [option] if value else []
        elif isinstance(value, list):
            said.append(f"{option} {','.join(value)}")
        elif name == "rate_mb_s":
            said.append(f"{option} {'max' if value is None else f'{value:.9g}'}")
        elif value is not None:
            said.append(f"{option} {f'{value:.9g}' if isinstance(value, float) else value}")
    return " ".join(said)


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
    "quick": "--quick",
    "demo": "--demo",
    "seed": "--seed",
    "find_rate": "--find-rate",
}


def _elided(name: str, most: int | None) -> str:
    if most is None or len(name) <= most:
        return name
    return f"{name[: most // 2]}…{name[1 - most // 2 :]}"


def left_out(summary: dict[str, Any]) -> list[Section]:
    said: dict[str, None] = {
        f"{workload}, {label(name)}: {entry['reason']}": None
        for name, workload, _, _, entry in entries(summary["systems"])
        if entry["status"] == "impossible"
    }
    said |= {f"{left['what']}: {left['why']}": None for left in summary["plan"]["left_out"]}
    return [section("What was not possible, or left out", Bullets(list(said)))] if said else []


def limits(summary: dict[str, Any]) -> Section:
    rtt = summary["settings"]["rtt_ms"]
    network = (
        f"There is no network: a wait of {rtt:g} ms there and back stands for it, of any number of bytes."
        if rtt
        else "There is no network: a message costs no time. --rtt MS gives it some."
    )
    return section(
        "What this cannot show",
        Bullets(
            [
                *(mode.limit for mode in MODES if mode.limit),
                "One machine, one disk, no replicas: nothing here is about scaling or fail-over.",
                network,
                "All of it is Python, generator and readers included, and they share the processors "
                "with the system under test: ratios say more than absolute figures.",
                "reshard's workers commit in turn, spread over the interval, and all write to all "
                f"partitions.{''.join(f' {mode.crowded}' for mode in MODES if mode.crowded)}",
                "Seconds, not days: no growth over time, no compaction of weeks of data.",
            ]
        ),
    )
