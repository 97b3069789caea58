"""Judges how the real engine handles a damaged copy: verified, read, opened by an owner, read again.

                        ┌ the same as ever ─────────────────────────────▶ unseen
    verify, read, open ─┼ refused: a typed error ───────────────────────▶ refused
                        ├ other content, and `verify` names a problem ──▶ named
                        └ other content else ──────────▶ wrong: a violation
    an untyped error, a killed process, no end ────────▶ a violation

The end of a killed store's log is no exception: the owner's mark says which turn was synced. The second reader
sees the owner's result: the owner may have taken files for empty, or continued from damaged data.

Next: ../rows/bitflip.py.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import planstep
from planstep.errors import PlanstepError
from planstep.store.verify import verify

from .contents import Contents, contents, difference, looked_up
from .damage import Damage
from .sample import Sample, quickly

_WAYS = "reader", "owner", "later reader"


@dataclass
class Verdict:
    """The result: `end` is unseen, refused, named or wrong; `who` refused or named it first; `why` in words."""

    end: str
    who: str = ""
    why: str = ""


@dataclass
class Looks:
    """The results of opening in each of `_WAYS`: contents, or errors."""

    problems: list[str] = field(default_factory=list)
    shown: dict[str, Contents] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    untyped: list[str] = field(default_factory=list)


def look(store: Path, whole: Contents | None = None) -> Looks:
    """Verifies `store`, and opens it in all of `_WAYS`; nothing raises. Rows of `whole` are looked up by their keys
    before any scan.
    """
    looks = Looks()
    try:
        for host in sorted(store.glob("host-*")):
            looks.problems += [f"{host.name}: {p.tablet} {p.key}: {p.what}" for p in verify(host)]
    except Exception as error:
        looks.untyped.append(f"verify: {error!r}")
    for way in _WAYS:
        try:
            with planstep.open(store, create=False, read_only=way != "owner") as db:
                differing = looked_up(db, whole or {})
                looks.shown[way] = contents(db) | differing
        except PlanstepError as error:
            looks.refused[way] = f"{type(error).__name__}: {error}"
            if not str(error):
                looks.untyped.append(f"{way}: {type(error).__name__} without a word")
        except Exception as error:
            looks.untyped.append(f"{way}: {error!r}")
    return looks


def judged(task: tuple[Sample, Contents, Damage, Path]) -> Verdict:
    """Plants the damaged copy below the folder and judges it, in a child."""
    sample, whole, damage, folder = task
    quickly()
    store = folder / "image"
    shutil.rmtree(store, ignore_errors=True)
    sample.planted(store, damage.exchanged)
    looks = look(store, whole)
    shutil.rmtree(store, ignore_errors=True)
    if looks.untyped:
        return Verdict("wrong", why="; ".join(looks.untyped))
    if all(shown == whole for shown in looks.shown.values()):
        if looks.refused:
            who = next(iter(looks.refused))
            return Verdict("refused", who, looks.refused[who])
        return Verdict("unseen", "verify" if looks.problems else "")
    if looks.problems and damage.is_valid_by_itself:
        return Verdict("named", "verify", looks.problems[0])
    for way, shown in looks.shown.items():
        if shown != whole:
            return Verdict("wrong", way, f"{way} shows {difference(whole, shown)}")
    raise AssertionError("one of them differs")
