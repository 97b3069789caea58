"""Collects `db.stats()`: counters since the engine was opened, and its present state.

    hosts, generation, step
    transactions   committed, conflicts (all that were aborted), aborted {cause: n}, failed {error: n},
                   waiting (sent and not answered); causes as in outcome.py, `failed` by error's name
    turns          histograms: seconds of a turn, transactions that it answered, sync_seconds
                   of its write and sync as one call, bytes that it appended to the log
    store          counters of all hosts' stores together (../store/turn.py)
    costs          of all transactions together: requests, messages, appends, entries, syncs,
                   client_bytes, tablet_bytes (ledger.py)
    steps          durable changes by their cause, {"partition": {"Plan": 3, …}, …}: kind of tablet, message,
                   once for each transaction
    fetches        requests of readers to tablets: rows, scans, batches, positions
    links          bytes by link: "client", and "0-1" from host 0 to host 1, "0-0" between tablets of host 0
                   with placement "separate"
    per_host       the same counters of each host, with messages
    memory         history_bytes (overwritten versions for snapshots), unsaved_keys and unsaved_bytes
                   (waiting for a checkpoint), admission_bytes (under way), admission_waits,
                   admission_refused (Overloaded), cache_bytes (batches read in part)
    checkpoint_age_seconds   since the last checkpoint, of the host where that is longest; None in memory
    snapshots      open, oldest_seconds
    disk_bytes     log, tables, aside (spare, reserve, cushion), other: allocated, of all hosts; zero in memory

    processes      of an owner: attached (now), served (since it began to own), and what its consumers share
    link           in a process that is attached: owner (its process id), connected (False while one is looked
                   for), owners_lost
    owner          there, too: all of this as the store's owner counts it, who runs the turns
    shared_log     of a replicated store alone: role ("owner", "follower"), term, floor, requests {"put": n, "get",
                   "list", "delete"}, sent_bytes, received_bytes, mine_after_doubt, void_records;
                   of its owner: append_seconds (a histogram), waiting_seconds (of the append under way), fences;
                   of a follower: lag_turns, lag_seconds; of an owner in mode "async", too: and lag_bytes

A store in memory writes nothing: its sync_seconds and bytes stay empty.
A histogram is {"count", "sum", "buckets": {bound: how many were at most that}}.

Next: ../metrics.py.
"""

import contextlib
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import IoError
from ..histogram import merged
from ..host.inputs import Steps
from ..proto.ids import KIND_NAMES, host_of
from ..store.disk_store import DiskStore
from ..store.files import Files

if TYPE_CHECKING:
    from .runtime import Runtime

_HISTOGRAMS = ("sync_seconds", "turn_bytes")


def stats(runtime: "Runtime") -> dict[str, Any]:
    """Returns all of it; costs about as much as a small transaction, and a listing of the store's folder."""
    nodes = runtime.nodes
    counters = [node.host.store.counters for node in nodes]
    names = [n for n in counters[0].__dataclass_fields__ if n not in _HISTOGRAMS]
    per_host = [
        {**{name: getattr(counter, name) for name in names}, "messages": node.host.messages}
        for counter, node in zip(counters, nodes, strict=True)
    ]
    store: dict[str, Any] = {name: sum(host[name] for host in per_host) for name in per_host[0]}
    behind = [node.host.store.behind() for node in nodes if isinstance(node.host.store, DiskStore)]
    opened, oldest = runtime.open_snapshots()
    return {
        "hosts": runtime.hosts,
        "generation": runtime.generation,
        "step": nodes[0].host.step_released,
        "transactions": {
            "committed": runtime.turns.committed,
            "conflicts": runtime.turns.conflicts,
            "aborted": dict(runtime.turns.aborted),
            "failed": dict(runtime.turns.failed),
            "waiting": len(runtime.replies.waiting),
        },
        "turns": {
            "seconds": merged(node.turn_seconds for node in nodes),
            "transactions": merged(node.turn_transactions for node in nodes),
            "sync_seconds": merged(counter.sync_seconds for counter in counters),
            "bytes": merged(counter.turn_bytes for counter in counters),
        },
        "store": store,
        "costs": {
            "entries": runtime.ledger.entries,
            **{
                name: getattr(runtime.ledger.total, name)
                for name in (
                    *("requests", "messages", "appends", "syncs"),
                    *("client_bytes", "tablet_bytes"),
                )
            },
        },
        "steps": _steps(runtime.ledger.steps),
        "fetches": runtime.views.fetches,
        "links": {
            "client": runtime.ledger.total.client_bytes,
            **{
                f"{node.host.number}-{target}": link.bytes_sent
                for node in nodes
                for target, link in node.host.links.items()
            },
        },
        "per_host": per_host,
        "memory": {
            "history_bytes": sum(node.host.history.bytes for node in nodes),
            "unsaved_keys": sum(b["unsaved_keys"] for b in behind),
            "unsaved_bytes": sum(b["unsaved_bytes"] for b in behind),
            "admission_bytes": runtime.admission.bytes,
            "admission_waits": runtime.admission.waits,
            "admission_refused": runtime.admission.refused,
            "cache_bytes": runtime.views.cache_bytes,
        },
        "checkpoint_age_seconds": max((b["checkpoint_age_seconds"] for b in behind), default=None),
        "snapshots": {"open": opened, "oldest_seconds": oldest},
        "disk_bytes": disk_bytes([held for node in nodes if (held := _folder(node.host.store))]),
        **({} if runtime.shared_stats is None else {"shared_log": runtime.shared_stats()}),
    }


def _steps(counted: Steps) -> dict[str, dict[str, int]]:
    by_kind: dict[str, dict[str, int]] = {}
    for (kind, message), times in sorted(counted.copy().items()):
        by_kind.setdefault(KIND_NAMES[kind], {})[message] = times
    return by_kind


class TopicLevel(NamedTuple):
    """Records of a topic, and (lag, missed) of each of its consumers, as last released."""

    records: int
    consumers: dict[str, tuple[int, int]]


def levels(runtime: "Runtime") -> dict[str, TopicLevel]:
    """Returns the level of each topic by name, each partition as last released.

    The partitions have no step in common, so that nothing is waited for. Partitions of a host that is stopped are
    left out.
    """
    by_topic = {}
    views = runtime.views
    for name, topic in sorted(runtime.names.topics.items()):
        created = list(runtime.names.consumers.get(topic.id, {}))
        records = 0
        rows: list[tuple[int, int]] = []
        for tablet in topic.partitions:
            node = runtime.nodes[host_of(tablet)]
            if node.down:
                continue
            start, end = views.log_bounds(tablet)
            records += end - start
            rows.append((tablet, end - start))
        names = {name for tablet, _ in rows for name in views.consumers(tablet)}
        consumers = {}
        for consumer in sorted(names.union(created)):
            parts = [views.standing(tablet, consumer) or (size, 0) for tablet, size in rows]
            consumers[consumer] = (sum(lag for lag, _ in parts), sum(n for _, n in parts))
        by_topic[name] = TopicLevel(records, consumers)
    return by_topic


def _folder(store: Any) -> tuple[Files, Path] | None:
    """Returns the folder of a store and its files; None for a store in memory."""
    folder = getattr(store, "_folder", None)
    return None if folder is None else (folder.files, folder.path)


def disk_bytes(folders: list[tuple[Files, Path]]) -> dict[str, int]:
    """Sums the allocated bytes of hosts' folders by purpose; each folder comes with its `Files`."""
    sizes = {"log": 0, "tables": 0, "aside": 0, "other": 0}
    for files, folder in folders:
        for path in (folder, folder / "table"):
            with contextlib.suppress(IoError):
                for name, status in files.states(path):
                    if stat.S_ISREG(status.st_mode):
                        sizes[_purpose(path, name)] += status.st_blocks * 512
    return sizes


def _purpose(folder: Path, name: str) -> str:
    if folder.name == "table":
        return "tables" if name == "data.mdb" else "other"
    if name in ("spare", "reserve", "cushion"):
        return "aside"
    return "log" if name.startswith(("log-", "data-")) else "other"
