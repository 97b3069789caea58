"""Lists bugs to plant in what replicates a store: the ownership, the log, the store, what opens it.

    Planted ─▶ worlds, seed after seed ─▶ a violation that begins with one of `said`

Rules that only thousands of random worlds come to are in row `shared-model`: a void BEGIN that is removed, a fence
below the floor that is believed.

Next: ../../rows/shared.py.
"""

from ..mutants.mutant import Mutant
from ..shared.planted import BY_NAME as RULES
from ..shared.planted import Planted

_LOG_END = "store.log.log_writer:LogEnd.append"
_SHIP = "self.ship(number, self.address, changes, dropped, turn.payloads)"

PLANTED = (
    *(
        RULES[name]._replace(said=said)
        for name, said in (
            ("exists-is-mine", ("J1", "J2", "J3")),
            ("exists-is-fenced", ("B12",)),
            ("no-begin", ("J1", "J2", "J3")),
            ("begins-trimmed", ("J1", "J2", "J3", "B33")),
            ("floor-after-deletion", ("J1", "J2", "J3", "B33")),
        )
    ),
    Planted(
        Mutant(
            "overwriting-puts",
            "a put replaces what is there",
            "bench.proof.simulator.bucket:Bucket.create",
            "if name in self.objects:",
            "if False:",
        ),
        ("J1", "J2", "J3"),
    ),
    Planted(
        Mutant(
            "acknowledged-first",
            "a turn is acknowledged before it is put, which comes later",
            "bench.proof.simulator.bucket:Way.create",
            "created = bucket.create(name, data)",
            'first = name <= "log/00000000000000000001" or not name.startswith("log/")\n'
            "    created = bucket.create(name, data) if first else not bucket.create_later(name, data)",
        ),
        ("J2",),
    ),
    Planted(
        Mutant(
            "local-first",
            "a turn is written to the folder before it is put",
            _LOG_END,
            _SHIP,
            f"self._files.write(self.fd, buffers, position, self._sync)\n            {_SHIP}",
        ),
        ("B33", "B37", "J3"),
    ),
    Planted(
        Mutant(
            "doubt-untold",
            "what was sent, and is not known to count, is told to have no effect",
            "store.replicated:stop_sending",
            "closed.in_doubt = True",
            "pass",
        ),
        ("B12",),
    ),
    Planted(
        Mutant(
            "another-segment",
            "a local write that fails behind the put ends history before the turn",
            _LOG_END,
            "self.sending = True",
            "self.sending = False",
        ),
        ("B12", "B33", "J3"),
    ),
    Planted(
        Mutant(
            "ids-reused",
            "a new owner's transactions have the ids of another machine's",
            "store.disk_store:DiskStore.generation.fget",
            "return self._log.generation if shared is None else shared.term",
            "return self._log.generation",
        ),
        ("B12", "B37"),
    ),
    Planted(
        Mutant(
            "leftovers-kept",
            "what the last owner staged is not withdrawn",
            "runtime.replication:Connection.lead",
            "store.clean = not is_seed if opened is None else opened.closed",
            "store.clean = True",
        ),
        ("B37",),
    ),
    Planted(
        Mutant(
            "unconfirmed-read",
            "an owner reads without looking whether anybody has begun behind it",
            "shared.objects_log:ObjectsLog.barrier",
            "if entry is not None:",
            "if False:",
        ),
        ("B15", "B16"),
    ),
    Planted(
        Mutant(
            "floor-before-snapshot",
            "the log is trimmed before the snapshot is whole",
            "runtime.snapshotting:Snapshotter.make_now",
            "newest = next(snapshots.newest_first(), None)",
            "log.trim(store.table.state()[0])\n    newest = next(snapshots.newest_first(), None)",
        ),
        ("B33", "B37"),
    ),
)
BY_NAME = {rule.mutant.name: rule for rule in PLANTED}
