"""Runs the same script in each mode, with one file of answers for each mode whose answers differ.

modes/<behaviour>/script.txt begins with its subject; each mode's file of answers begins with a description of
the result, up to the first empty line; then come the answers. kafka-2.txt exists where version 2 of Kafka's
protocol (KIP-890) answers otherwise, pulsar-kept.txt where a coordinator that remembers ended transactions does.
All run on one host and on four, unless the script says otherwise.

spoken.py has the language, sides.py a class for each mode. To add one: write script.txt, run with
PLANSTEP_GOLDEN=write, read the answers, then describe them at the top.
"""

from pathlib import Path

import pytest
from scripted import WRITES
from sides import SIDES
from spoken import converse

SCRIPTS = sorted((Path(__file__).parent / "modes").glob("*/script.txt"))


def told_in(path: Path) -> tuple[list[str], list[str]]:
    """Splits a file of answers into its heading, up to the first empty line, and the rest."""
    lines = path.read_text().splitlines() if path.exists() else ["# ?", ""]
    at = lines.index("") + 1
    return lines[:at], lines[at:]


PLAYED = [
    pytest.param(script, side, id=f"{script.parent.name}-{side}")
    for script in SCRIPTS
    for side in SIDES
    if not SIDES[side].only_where_told or script.with_stem(side).exists()
]


@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize(("script", "side"), PLAYED)
def test_mode(script: Path, side: str, hosts: int, tmp_path: Path) -> None:
    lines = script.read_text().splitlines()
    lines = lines[lines.index("") + 1 :]
    on_disk = "kill -9" in lines or "reopen" in lines
    expected = script.parent / f"{side}.txt"
    like = SIDES[side].like
    same = expected.with_stem(like) if like and not expected.exists() else expected
    known = None if WRITES else told_in(same)[1]
    answers = converse(lines, side, hosts, tmp_path / "s" if on_disk else ":memory:", known)
    if like and (not expected.exists() or WRITES):
        known = told_in(expected.with_stem(like))[1]
        if answers == known or not WRITES:
            assert answers == known
            return
    head, known = told_in(expected)
    if WRITES and hosts == 1:
        expected.write_text("\n".join([*head, *answers]) + "\n")
    else:
        assert answers == known
