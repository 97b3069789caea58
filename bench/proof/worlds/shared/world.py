"""Moves machines that share a log: one call of one of them, one fault, or one late put at a time.

    machines ── open, turn, read ──▶ calls ─▶ the object store
        └─ trim ─▶ janitors: snapshot, floor, deletions ─▶

    State ── take(Move) ──▶ State, with what is wrong in it

A machine sleeps where no move of it is chosen. It crashes, loses its folder, gets an old one. An owner that was
taken over goes on wherever it slept, and so does its trim; a trim may be cut short anywhere.

Left out: bytes that change in a store, a store that is put back to an older state, folders of other stores.

Next: walk.py, search.py.
"""

from collections.abc import Iterator

from .....errors import Fenced, LogUnreachable, Trimmed
from . import judge
from .machine import (
    ACKNOWLEDGE,
    OPEN,
    PROGRAMS,
    READ,
    RESTORE,
    TRIM,
    TURN,
    Folder,
    Machine,
    Paused,
    Process,
    Run,
    nonce_of,
)
from .object_store import ObjectStore
from .objects import EXISTS, PUT, UNKNOWN
from .state import (
    BACK_UP,
    CRASH,
    CUT_SHORT,
    EMPTY,
    GO,
    LAND,
    LEFT,
    PUT_BACK,
    TIDY,
    Left,
    Move,
    Scene,
    State,
)

_JANITORS_MAX = 2
IN_DOUBT = "a fenced owner does not know whether its last turn counts"
MINE = "a turn counts, though its put was not answered, or refused"
FENCED, TAKER_FENCED = "an owner is fenced", "a taker is fenced"
LANDED, RESTORED = "a put lands late", "a folder is restored"
STARTS_OVER = "a taker finds that its BEGIN is void"
STALE_READ = "a read is refused"
COMMITTED = "a commit is acknowledged"


class World(ObjectStore):
    """Makes states and their successors."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene
        self._takes = {
            GO: self._go,
            OPEN: self._open,
            TURN: self._commit,
            READ: self._read,
            TRIM: self._trim,
            TIDY: self._tidy,
            LAND: self._land,
            CRASH: self._crash,
            EMPTY: self._new_folder,
            PUT_BACK: self._new_folder,
            BACK_UP: self._back_up,
            CUT_SHORT: self._cut_short,
        }

    def first(self) -> State:
        machines = tuple(Machine(number) for number in range(self.scene.machines))
        state = State(machines, Left(), {})
        for move in self.scene.story:
            state = self.take(state, move)
            assert not state.wrong, state.wrong
        self.reached.clear()
        return state._replace(left=self.scene.left)

    # moves -----------------------------------------------------------------------------------

    def moves(self, state: State) -> Iterator[Move]:
        for machine in state.machines:
            yield from self.of_machine(state, machine)
        yield from self.of_strays(state)
        yield from self.of_janitors(state)

    def of_machine(self, state: State, machine: Machine) -> Iterator[Move]:
        left, number, process = state.left, machine.number, machine.process
        if process is not None:
            yield Move(GO, number)
            yield from (Move(GO, number, kind) for kind in self._doubts(state, process))
        yield from self._programs(state, machine)
        if left.crashes and machine.up:
            yield Move(CRASH, number)
            if left.doubts and process is not None and process.call.what == PUT:
                yield Move(CRASH, number, LEFT)
        if left.folders:
            yield from (Move(what, number) for what in (EMPTY, BACK_UP, PUT_BACK))

    def _programs(self, state: State, machine: Machine) -> Iterator[Move]:
        """Yields the programs that a machine may begin; a trim beside its turns."""
        left, number = state.left, machine.number
        if left.opens and not machine.up:
            yield Move(OPEN, number)
        if machine.ownership is None:
            return
        if left.commits and machine.process is None:
            yield Move(TURN, number)
        if left.reads and machine.process is None:
            yield Move(READ, number)
        if left.trims and len(state.janitors) < _JANITORS_MAX:
            if len(machine.now.turns) not in (0, 1, state.floor):
                yield Move(TRIM, number)

    def _doubts(self, state: State, process: Process) -> tuple[str, ...]:
        """Returns the faults that the answer to a program's call may have."""
        return self.scene.doubts.get(process.call.what, ()) if state.left.doubts else ()

    def of_strays(self, state: State) -> Iterator[Move]:
        """Yields the puts that may land late, and change something then."""
        for item, (name, _) in enumerate(state.strays):
            if name not in state.objects:
                yield Move(LAND, item=item)

    def of_janitors(self, state: State) -> Iterator[Move]:
        for item, janitor in enumerate(state.janitors):
            assert janitor.process is not None
            yield Move(TIDY, item=item)
            kinds = self._doubts(state, janitor.process)
            yield from (Move(TIDY, kind=kind, item=item) for kind in kinds)

    def take(self, state: State, move: Move) -> State:
        """Returns the state after a move, judged."""
        after = self._takes[move.what](state._replace(wrong=()), move)
        if move.host >= 0:
            after = after.judged(*judge.folder(after, after.machines[move.host]))
        if after.objects is not state.objects or after.snapshot is not state.snapshot:
            after = after.judged(*judge.fresh(after, lambda call: self.answer(after, call)[0]))
        return after

    # machines --------------------------------------------------------------------------------

    def _go(self, state: State, move: Move) -> State:
        if move.kind:
            state = state.without("doubts")
        return self._go_on(state, state.machines[move.host], move.kind)

    def _go_on(self, state: State, machine: Machine, kind: str) -> State:
        process = machine.process
        assert process is not None, "the machine has nothing under way"
        self.reached[RESTORED] += process.call.what == RESTORE
        self.reached[COMMITTED] += process.call.what == ACKNOWLEDGE
        answer, state = self.answer(state, process.call, kind)
        return self._run(state, machine, process.with_answer(answer))

    def _begin(self, state: State, number: int, program: str, content: bytes) -> State:
        process = Process(program, content, state.acknowledged)
        return self._run(state, state.machines[number], process)

    def _run(self, state: State, machine: Machine, process: Process) -> State:
        """Runs a program up to its next call."""
        run = Run(process, machine.folder, machine.ownership)
        try:
            ownership = PROGRAMS[process.program](run)
        except Paused as paused:
            process = process._replace(call=paused.call)
            machine = machine._replace(process=process, now=run.local.folder)
            state = state.with_machine(machine)
            at_once = paused.call.what == ACKNOWLEDGE
            return self._go_on(state, machine, "") if at_once else state
        except Exception as error:
            machine = machine._replace(now=run.local.folder)
            return self._failed(state.with_machine(machine.down()), process, error)
        assert ownership is not None
        del ownership.log
        machine = machine.with_folder(run.local.folder)
        machine = machine._replace(ownership=ownership, process=None)
        state = state.with_machine(machine)
        if process.program == OPEN:
            return self._begin(state, machine.number, TURN, b"")
        if process.program == READ:
            return state.judged(*judge.read(machine, process))
        self.reached[MINE] += not {EXISTS, UNKNOWN}.isdisjoint(process.answers)
        return state

    def _failed(self, state: State, process: Process, error: Exception) -> State:
        if process.program == READ and isinstance(error, Fenced):
            self.reached[STALE_READ] += 1
        elif process.program == TURN and isinstance(error, Fenced):
            self.reached[FENCED if process.content else TAKER_FENCED] += 1
            self.reached[IN_DOUBT] += bool(process.content) and error.in_doubt
            if process.content and not error.in_doubt:
                state = state._replace(fenced=(*state.fenced, process.content))
                return state.judged(*judge.without_effect(state, process.content))
        elif process.program == TURN and isinstance(error, Trimmed):
            self.reached[STARTS_OVER] += 1
        elif not isinstance(error, LogUnreachable):
            return state.judged(f"J0: a machine's {process.program} ended with {error!r}")
        return state

    def _open(self, state: State, move: Move) -> State:
        machine = state.machines[move.host]
        machine = machine._replace(opened=machine.opened + 1)
        state = state.with_machine(machine).without("opens")
        return self._begin(state, move.host, OPEN, nonce_of(machine))

    def _commit(self, state: State, move: Move) -> State:
        machine = state.machines[move.host]
        what = len(machine.now.turns) + 1, machine.opened, machine.number
        content = b"turn %d of opening %d of machine %d" % what
        return self._begin(state.without("commits"), move.host, TURN, content)

    def _read(self, state: State, move: Move) -> State:
        return self._begin(state.without("reads"), move.host, READ, b"")

    def _crash(self, state: State, move: Move) -> State:
        machine, state = state.machines[move.host], state.without("crashes")
        if move.kind == LEFT:
            assert machine.process is not None
            state = self.astray(state.without("doubts"), machine.process.call)
        return state.with_machine(machine.down())

    def _new_folder(self, state: State, move: Move) -> State:
        machine = state.machines[move.host].down()
        folder = machine.backup if move.what == PUT_BACK else Folder()
        return state.with_machine(machine.with_folder(folder)).without("folders")

    def _back_up(self, state: State, move: Move) -> State:
        machine = state.machines[move.host]
        machine = machine._replace(backup=machine.now)
        return state.with_machine(machine).without("folders")

    # trims, and puts that come late ----------------------------------------------------------

    def _trim(self, state: State, move: Move) -> State:
        """Starts a trim beside the turns of a machine; it goes on after the machine's ownership."""
        janitor = Machine(-1, self._decided(state.machines[move.host]))
        state = state.without("trims")._replace(janitors=(*state.janitors, janitor))
        return self._run_trim(state, len(state.janitors) - 1, Process(TRIM))

    def _decided(self, machine: Machine) -> Folder:
        return machine.now

    def _tidy(self, state: State, move: Move) -> State:
        process = state.janitors[move.item].process
        assert process is not None
        if move.kind:
            state = state.without("doubts")
        answer, state = self.answer(state, process.call, move.kind)
        return self._run_trim(state, move.item, process.with_answer(answer))

    def _run_trim(self, state: State, item: int, process: Process) -> State:
        janitors = list(state.janitors)
        janitor = janitors.pop(item)
        try:
            PROGRAMS[TRIM](Run(process, janitor.folder, None))
        except Paused as paused:
            process = process._replace(call=paused.call)
            janitors.insert(item, janitor._replace(process=process))
        except LogUnreachable:
            pass  # it is cut short
        return state._replace(janitors=tuple(janitors))

    def _cut_short(self, state: State, move: Move) -> State:
        janitors = state.janitors[: move.item] + state.janitors[move.item + 1 :]
        return state._replace(janitors=janitors)

    def _land(self, state: State, move: Move) -> State:
        self.reached[LANDED] += 1
        return self.landed(state, *state.strays[move.item])[1]
