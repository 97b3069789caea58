"""Lists the rules of a shared log, each removed once from the real ownership or from the world around it.

    Mutant ─▶ walks, or a story ─▶ what the judge says, which must be of the kind that is listed here

Random walks come to the end of a void BEGIN that is removed once in thousands: that one is a story.

Next: ../../rows/shared_model.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import msgpack

from .....shared.entry import Entry
from .....shared.owner import Ownership
from .....shared.shared_log import Position
from ..mutants.mutant import Mutant, planted
from .machine import ACKNOWLEDGE, WRITE, Run
from .objects import PUT, ImpatientLog

_OWNER = "shared.owner:Ownership."
_WORLD = "bench.proof.worlds.shared."
_LOG = "shared.objects_log:ObjectsLog."
_PUT = "shared.patient:PatientObjects._try_put"
_STORE = _WORLD + "object_store:ObjectStore."
_APPEND = 'ownership.append(number, 0, changes, b"", [content])'
_FLOOR_PUT = 'self._patient.put(f"{_FLOOR}{turn:020d}", _FLOOR_DATA)'
_FLOORS_REMOVED = """\
for floor in self._numbers(_FLOOR):
        self._objects.remove(f"{_FLOOR}{floor:020d}")
    """
_DELETION = "_for_each([number for number in self._numbers(_LOG) if number < turn], self._remove)"


class Planted(NamedTuple):
    """A rule that is removed. `said`: one of these words opens the violation; `story`: "" for random walks.

    `unchecked`: a check to remove besides, which would report that the rule is broken before it does harm.
    """

    mutant: Mutant
    said: tuple[str, ...]
    story: str = ""
    unchecked: Mutant | None = None

    @contextmanager
    def removed(self) -> Iterator[None]:
        """Removes the rule until the context exits."""
        with planted(self.mutant), planted(self.unchecked) if self.unchecked else nullcontext():
            yield


class _HastyLog(ImpatientLog):
    """Sends an entry, and goes on without knowing whether its slot holds it."""

    def __init__(self, caller: Run) -> None:
        super().__init__(caller)
        self.caller = caller
        self.sent: list[Entry] = []

    def append(self, entry: Entry) -> bytes:
        self.caller.call(PUT, f"log/{entry.turn:020d}", entry.data)
        self.sent.append(entry)
        return b""


def two_under_way(run: Run) -> Ownership:
    """Runs two turns: the second one is sent before the first one is decided. Both are answered in order."""
    ownership, content = run.ownership(), run.process.content
    hasty, log = _HastyLog(run), ownership.log
    written: list[tuple[int, bytes, bytes]] = []
    for suffix in (b"", b", the one behind"):
        ownership.log = log if suffix else hasty
        log.open(ownership.last)
        number, changes = ownership.last.turn + 1, msgpack.packb(ownership.row())
        ownership.append(number, 0, changes, b"", [content + suffix])
        written.append((number, changes, content + suffix))
    log.open(Position(hasty.sent[0].turn - 1))
    log.append(hasty.sent[0])  # this decides the first one, by the same bytes
    run.call(WRITE)
    for number, changes, payload in written:
        run.local.folder = run.local.folder.written(changes, payload)
        run.call(ACKNOWLEDGE, str(number), payload)
    return ownership


PLANTED = (
    Planted(
        Mutant(
            "overwriting-puts",
            "a put replaces what is there",
            _STORE + "landed",
            "if name in state.objects:",
            "if False:",
        ),
        ("J1",),
    ),
    Planted(
        Mutant(
            "exists-is-mine",
            "a put that is refused counts as one's own",
            _PUT,
            "if self.objects.create(name, data):",
            "if self.objects.create(name, data) or True:",
        ),
        ("J2", "J3"),
    ),
    Planted(
        Mutant(
            "exists-is-fenced",
            "a put that is refused counts as another's, though it met its own copy",
            _PUT,
            "if self.objects.create(name, data):",
            "created = self.objects.create(name, data)\n"
            '        if not created and name.startswith("log/"):\n'
            "            from planstep.errors import Fenced\n"
            "            raise Fenced(0)\n"
            "        if created:",
        ),
        ("J4",),
    ),
    Planted(
        Mutant(
            "acknowledged-first",
            "a turn is acknowledged before it is put",
            _WORLD + "machine:turn",
            _APPEND,
            f"if content:\n        run.call(ACKNOWLEDGE, str(number), content)\n    {_APPEND}",
        ),
        ("J2",),
    ),
    Planted(
        Mutant(
            "two-under-way",
            "a turn is sent before the one before it is decided",
            _WORLD + "machine:turn",
            _APPEND,
            "if content:\n        from .planted import two_under_way\n"
            f"        return two_under_way(run)\n    {_APPEND}",
        ),
        ("J1", "J2"),
    ),
    Planted(
        Mutant(
            "local-first",
            "a turn is written to the folder before it is put",
            _WORLD + "machine:turn",
            _APPEND,
            f"run.local.folder = run.local.folder.written(changes, content)\n    {_APPEND}",
        ),
        ("J3",),
    ),
    Planted(
        Mutant(
            "new-bytes",
            "after a doubt other bytes are sent",
            _WORLD + "machine:turn",
            _APPEND,
            "from planstep.errors import LogUnreachable\n"
            f"    try:\n        {_APPEND}\n"
            "    except LogUnreachable:\n"
            "        ownership._sent = None\n"
            '        ownership.append(number, 0, changes, b"again", [content])',
        ),
        ("J1", "J4"),
    ),
    Planted(
        Mutant(
            "no-begin",
            "an owner appends turns without a BEGIN before them",
            _OWNER + "begin",
            "self._kind = BEGIN",
            "self._kind = TURN",
        ),
        ("J1", "J2"),
        unchecked=Mutant(
            "owners-unchecked",
            "a reader takes turns of an owner that did not begin",
            _OWNER + "_check_owner",
            "if not fits:",
            "if False:",
        ),
    ),
    Planted(
        Mutant(
            "no-look-after-begin",
            "a taker does not look at the floor when its BEGIN is decided",
            _OWNER + "send",
            "self._look_at_floor(turn)",
            "pass",
            source="slatedb/slatedb#1682: the fence is checked against the replay point",
        ),
        ("J1", "J2", "J3"),
    ),
    Planted(
        Mutant(
            "void-begin-removed",
            "a taker whose BEGIN is void removes it",
            _OWNER + "send",
            "self._look_at_floor(turn)",
            "try:\n"
            "            self._look_at_floor(turn)\n"
            "        except Trimmed:\n"
            '            self.log._objects.remove(f"log/{turn:020d}")\n'
            "            raise",
        ),
        ("J1",),
        "a taker sleeps behind its BEGIN",
    ),
    Planted(
        Mutant(
            "no-reader-look",
            "a reader that meets a BEGIN does not look at the floor",
            _OWNER + "_check",
            "if entry.kind == BEGIN:",
            "if False:",
        ),
        ("J2", "J3"),
    ),
    Planted(
        Mutant(
            "fence-believed",
            "an owner that meets another's BEGIN in its slot does not look at the floor",
            _OWNER + "send",
            "error.in_doubt = error.in_doubt or self.log.floor() > turn",
            "error.in_doubt = False",
        ),
        ("J4",),
        "an owner sleeps behind its put",
    ),
    Planted(
        Mutant(
            "chain-not-compared",
            "an entry is taken, whatever turns it follows, and whoever wrote it",
            _OWNER + "_check",
            "if entry.before != self.last.chain:",
            "if False:",
        ),
        ("J3",),
        "the store is put back",
        unchecked=Mutant(
            "last-owner-unchecked",
            "a folder's last turn may be another owner's in the log",
            _OWNER + "find",
            "if entry.owner != (row.term, row.nonce):",
            "if False:",
        ),
    ),
    Planted(
        Mutant(
            "begins-trimmed",
            "a trim removes BEGINs, too",
            _LOG + "_remove",
            " and entry.kind != BEGIN",
            "",
            source="slatedb/slatedb#1672: fences are kept",
        ),
        ("J1", "J2"),
    ),
    Planted(
        Mutant(
            "floor-after-deletion",
            "the floor is raised after the turns below it are removed",
            _LOG + "trim",
            _FLOOR_PUT,
            f"{_DELETION}\n    {_FLOOR_PUT}",
        ),
        ("J1", "J2"),
    ),
    Planted(
        Mutant(
            "floor-before-snapshot",
            "turns are removed before the snapshot of them is whole",
            _WORLD + "machine:trim",
            "run.call(MANIFEST, data=run.local.folder)",
            "ImpatientLog(run).trim(run.local.last_turn)\n"
            "    run.call(MANIFEST, data=run.local.folder)",
        ),
        ("J2",),
    ),
    Planted(
        Mutant(
            "floor-lowered",
            "a floor replaces the ones before, also a higher one if it comes late",
            _LOG + "trim",
            _FLOOR_PUT,
            _FLOORS_REMOVED + _FLOOR_PUT,
        ),
        ("J1", "J2"),
    ),
    Planted(
        Mutant(
            "cut-floors-believed",
            "a list of floors that is cut short counts as whole",
            _WORLD + "objects:CalledObjects.names",
            "if not whole:",
            "if False:",
        ),
        ("J1", "J2", "J3"),
    ),
    Planted(
        Mutant(
            "undecided-snapshot",
            "a snapshot has a turn that is not decided",
            _WORLD + "world:World._decided",
            "return machine.now",
            "from .objects import decoded\n"
            "    if machine.process is None or machine.process.call.what != PUT:\n"
            "        return machine.now\n"
            "    entry = decoded(machine.process.call.data)\n"
            "    return machine.now.written(entry.changes, entry.payload)",
        ),
        ("J2",),
    ),
    Planted(
        Mutant(
            "unconfirmed-read",
            "an owner reads without looking whether anybody has begun behind it",
            _WORLD + "machine:read",
            "ownership.log.barrier()",
            "pass",
        ),
        ("J7",),
    ),
)
BY_NAME = {rule.mutant.name: rule for rule in PLANTED}
