"""Logs the library's events to the standard logger "planstep"; nothing is printed unless it is configured.

    logging.basicConfig(level=logging.INFO)         each record has `event` and the fields named here

    event               level    fields, as attributes of the record (`extra`)
    store_opened        INFO     store, hosts, mode, generation, step, read_only, seconds
    store_recovered     WARNING  store, generation, step, replayed_turns: it was not closed before
    store_closed        INFO     store, step, committed, aborted, seconds
    backup_made         INFO     store, path, step, records, rows, bytes, seconds
    slow_sync           WARNING  store (a host's folder), seconds, bytes: SLOW_SYNC_SECONDS or longer
    tried_again         WARNING  what (a checkpoint, a turn, the network, retention or cleaning), error
    snapshot_too_old    WARNING  what (a batch of process, a function of run), error: raised if it happens again
    contended           WARNING  what (a batch of process), tries, error: it runs again, for as long as it takes
    topic_trimmed       INFO     topic, partition, offset: by the topic's retention
    chore_failed        WARNING  store (a host's folder), error: it is tried again
    folder_set_aside    WARNING  store, path (its new one), turns (that the shared log has not): it was taken over;
                                 `planstep replicate lost` lists them
    left_open           WARNING  store (a host's folder), error: close() could not tell the shared log, so another
                                 machine opens the store with takeover=True
    run_damaged         ERROR    where (of a shared log), error: each turn of it is read by itself
    snapshot_made       INFO     store (a host's folder), turn, bytes (of all parts), sent (bytes), seconds
    snapshot_restored   INFO     store, turn, bytes, seconds: a folder begins from a snapshot of its shared log
    snapshot_unusable   ERROR    snapshot, error: it is damaged or lacks a part, and an older one is used
    broker_trouble      WARNING  log (a Kafka topic), error: what the client reports; calls are tried again
    follower_waits      WARNING  store (a host's folder), error: a follower does not reach the log, or has no space
    follower_ended      ERROR    store (a host's folder), error: a follower ended, and shows nothing any more
    no_space            ERROR    host, error: commits are refused, nothing is lost
    turn_failed         ERROR    host, error: its transactions are aborted
    host_stopped        CRITICAL host, error, with the traceback: a bug of the library
    engine_stopped      CRITICAL error, with the traceback: a bug outside of a turn, or no memory
    not_shared          WARNING  store, error: other processes cannot attach, as its folder has no sockets
    process_refused     WARNING  store (a host's folder), error: a process that connected may not attach
    owner_lost          WARNING  store (a host's folder), pid: the process that owned the store is gone
    owner_found         WARNING  store (a host's folder), seconds: this process owns the store now
    overloaded          WARNING  bytes (under way), size (refused)
    tx_resolved         INFO     tx, state
    lost_at_exit        ERROR    store, error: the interpreter ended before a writer could publish its records
    callback_raised     ERROR    error, with the traceback
    input_failed        ERROR    message_kind, error, with the traceback: the input was undone

Events that could come with every transaction (no_space, turn_failed, overloaded, slow_sync, chore_failed,
broker_trouble, follower_waits) are logged at most every SELDOM_SECONDS; `suppressed` counts those left out.
Tablets, coordinator and proxy log nothing.

Next: runtime/statistics.py, which counts what is not logged.
"""

import logging
import os
import time
from typing import Any

from .errors import PlanstepError, reason

SLOW_SYNC_SECONDS = 1.0
SELDOM_SECONDS = 10.0
log = logging.getLogger("planstep")
log.addHandler(logging.NullHandler())


class Seldom:
    """Passes one event of a kind every SELDOM_SECONDS and counts the others."""

    def __init__(self) -> None:
        self._emitted: dict[tuple[str, object], tuple[float, int]] = {}

    def passes(self, event: str, where: object, now: float) -> int | None:
        """Returns how many were suppressed since the last that passed, or None to suppress this one."""
        last, suppressed = self._emitted.get((event, where), (-SELDOM_SECONDS, 0))
        if now - last < SELDOM_SECONDS:
            self._emitted[event, where] = last, suppressed + 1
            return None
        self._emitted[event, where] = now, 0
        return suppressed


_seldom = Seldom()


def emit(
    level: int, event: str, text: str, trace: BaseException | None = None, **fields: Any
) -> None:
    """Logs one record, with the traceback of `trace`; `fields` become its attributes."""
    if log.isEnabledFor(level):
        log.log(level, text, extra={"event": event, **fields}, exc_info=trace)


def _emit_seldom(level: int, event: str, where: object, text: str, **fields: Any) -> None:
    suppressed = _seldom.passes(event, where, time.monotonic())
    if suppressed is not None:
        emit(level, event, text, suppressed=suppressed, **fields)


def store_opened(path: str, runtime: Any, read_only: bool, seconds: float) -> None:
    stores = [node.host.store for node in runtime.nodes]
    meta = getattr(stores[0], "meta", None)
    step = runtime.nodes[0].host.step_released
    fields: dict[str, Any] = {"store": path, "generation": runtime.generation, "step": step}
    if not all(store.clean for store in stores):
        replayed = sum(store.counters.replayed_turns for store in stores)
        text = f"{path}: it had not been closed; {replayed} turns behind the checkpoint are there"
        emit(logging.WARNING, "store_recovered", text, replayed_turns=replayed, **fields)
    fields |= {"hosts": runtime.hosts, "mode": meta.mode if meta is not None else "deterministic"}
    fields |= {"read_only": read_only, "seconds": seconds}
    emit(logging.INFO, "store_opened", f"{path}: opened at step {step}", **fields)


def store_closed(path: str, runtime: Any, seconds: float) -> None:
    step = runtime.nodes[0].host.step_released
    fields = {"store": path, "step": step, "seconds": seconds}
    counts = {"committed": runtime.turns.committed, "aborted": runtime.turns.conflicts}
    emit(logging.INFO, "store_closed", f"{path}: closed at step {step}", **fields, **counts)


def backup_made(path: str, backup: Any, seconds: float) -> None:
    fields = {name: getattr(backup, name) for name in ("path", "step", "records", "rows", "bytes")}
    text = f"{path}: backed up to {backup.path} at step {backup.step}"
    emit(logging.INFO, "backup_made", text, store=path, seconds=seconds, **fields)


def tx_resolved(outcome: Any) -> None:
    text = f"transaction {outcome.tx} was resolved: {outcome.state}"
    emit(logging.INFO, "tx_resolved", text, tx=outcome.tx, state=outcome.state)


def slow_sync(store: os.PathLike[str], seconds: float, size: int) -> None:
    text = f"{store}: writing and syncing {size} bytes took {seconds:.3f} s"
    where = os.fspath(store)
    fields = {"store": where, "seconds": seconds, "bytes": size}
    _emit_seldom(logging.WARNING, "slow_sync", where, text, **fields)


def not_shared(store: str, error: BaseException) -> None:
    text = f"{store}: other processes cannot attach: {error}"
    emit(logging.WARNING, "not_shared", text, store=store, error=str(error))


def owner_lost(runtime: Any, pid: int) -> None:
    store = os.fspath(runtime.nodes[0].host.store.folder)
    text = f"{store}: process {pid}, which owned the store, is gone"
    emit(logging.WARNING, "owner_lost", text, store=store, pid=pid)


def owner_found(runtime: Any, seconds: float) -> None:
    store = os.fspath(runtime.nodes[0].host.store.folder)
    text = f"{store}: this process owns the store now"
    emit(logging.WARNING, "owner_found", text, store=store, seconds=seconds)


def process_refused(store: os.PathLike[str], error: BaseException) -> None:
    where = os.fspath(store)
    text = f"{store}: a process was not let in: {error}"
    _emit_seldom(logging.WARNING, "process_refused", where, text, store=where, error=str(error))


def tried_again(what: str, error: BaseException) -> None:
    """Logs a retry, with a traceback if the error is not one of the library's."""
    foreign = None if isinstance(error, PlanstepError) else error
    text = f"{what} failed, and is tried again: {error}"
    emit(logging.WARNING, "tried_again", text, foreign, what=what, error=str(error))


def snapshot_too_old(what: str, error: BaseException) -> None:
    text = f"{what} runs once more, and the next time this is an error: {error}"
    emit(logging.WARNING, "snapshot_too_old", text, what=what, error=str(error))


def contended(what: str, tries: int, error: BaseException) -> None:
    text = f"{what} has conflicted {tries} times in a row, and runs again for as long as it takes: {error}"
    emit(logging.WARNING, "contended", text, what=what, tries=tries, error=str(error))


def lost_at_exit(store: str, writer: str, error: BaseException | None) -> None:
    text = f"{store}: the interpreter ends, and {writer} could not be published: {error}"
    emit(logging.ERROR, "lost_at_exit", text, store=store, error=str(error))


def callback_raised(error: BaseException) -> None:
    """Logs the error of a future's callback that the futures' own library does not handle."""
    text = f"a callback of a future raised {error!r}"
    emit(logging.ERROR, "callback_raised", text, error, error=repr(error))


def trimmed(topic: str, partition: int, offset: int) -> None:
    text = f"topic {topic!r}, partition {partition}: trimmed by its retention to {offset}"
    emit(logging.INFO, "topic_trimmed", text, topic=topic, partition=partition, offset=offset)


def chore_failed(store: os.PathLike[str], error: BaseException) -> None:
    text = f"{store}: a chore behind the checkpoint failed and is tried again: {error}"
    where = os.fspath(store)
    _emit_seldom(logging.WARNING, "chore_failed", where, text, store=where, error=str(error))


def broker_trouble(log: str, error: str) -> None:
    _emit_seldom(logging.WARNING, "broker_trouble", log, f"{log}: {error}", log=log, error=error)


def left_open(store: os.PathLike[str], error: BaseException) -> None:
    text = f"{store}: closed, and the shared log does not know it: another machine has to take it over: {error}"
    emit(logging.WARNING, "left_open", text, store=os.fspath(store), error=str(error))


def folder_set_aside(store: os.PathLike[str], path: os.PathLike[str], turns: int) -> None:
    text = f"{store} was taken over, and has {turns} turns of its own: set aside as {path}"
    emit(logging.WARNING, "folder_set_aside", text, store=str(store), path=str(path), turns=turns)


def run_damaged(where: str, error: BaseException) -> None:
    text = f"{error}: each turn of it is read by itself"
    emit(logging.ERROR, "run_damaged", text, where=where, error=str(error))


def snapshot_made(store: os.PathLike[str], turn: int, size: int, sent: int, seconds: float) -> None:
    text = (
        f"{store}: a snapshot of turn {turn} was made, of {size} bytes, of which {sent} were sent"
    )
    fields: dict[str, Any] = {"store": os.fspath(store), "turn": turn, "bytes": size}
    emit(logging.INFO, "snapshot_made", text, sent=sent, seconds=seconds, **fields)


def snapshot_restored(store: os.PathLike[str], turn: int, size: int, seconds: float) -> None:
    text = f"{store}: begun from a snapshot of turn {turn}"
    fields: dict[str, Any] = {"store": os.fspath(store), "turn": turn, "bytes": size}
    emit(logging.INFO, "snapshot_restored", text, seconds=seconds, **fields)


def snapshot_unusable(snapshot: str, error: BaseException) -> None:
    text = f"a snapshot is not usable, an older one is taken: {error}"
    emit(logging.ERROR, "snapshot_unusable", text, snapshot=snapshot, error=str(error))


def follower_waits(store: os.PathLike[str], error: BaseException) -> None:
    text = f"{store}: following the shared log is tried again: {error}"
    where = os.fspath(store)
    _emit_seldom(logging.WARNING, "follower_waits", where, text, store=where, error=str(error))


def follower_ended(store: os.PathLike[str], error: BaseException) -> None:
    foreign = None if isinstance(error, PlanstepError) else error
    text = f"{store}: no longer follows the shared log: {reason(error)}"
    fields = {"store": os.fspath(store), "error": reason(error)}
    emit(logging.ERROR, "follower_ended", text, foreign, **fields)


def no_space(host: int, error: BaseException) -> None:
    text = f"host {host} has no space, commits are refused: {error}"
    _emit_seldom(logging.ERROR, "no_space", host, text, host=host, error=str(error))


def turn_failed(host: int, error: BaseException) -> None:
    text = f"host {host} could not make a turn durable, its transactions are aborted: {error}"
    _emit_seldom(logging.ERROR, "turn_failed", host, text, host=host, error=str(error))


def input_failed(what: str, error: BaseException) -> None:
    text = f"a {what} was undone: {error!r}"
    emit(logging.ERROR, "input_failed", text, error, message_kind=what, error=repr(error))


def host_stopped(host: int, error: BaseException) -> None:
    text = f"host {host} stopped: {reason(error)}; reopen"
    emit(logging.CRITICAL, "host_stopped", text, error, host=host, error=reason(error))


def engine_stopped(error: BaseException) -> None:
    text = f"the engine stopped: {reason(error)}; reopen"
    emit(logging.CRITICAL, "engine_stopped", text, error, error=reason(error))


def overloaded(held: int, size: int) -> None:
    text = f"a commit of {size} bytes was refused: {held} bytes are under way"
    _emit_seldom(logging.WARNING, "overloaded", None, text, bytes=held, size=size)
