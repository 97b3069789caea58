"""Contends for the slots of a shared log: one of the processes that check_log.py starts.

    ─▶ a line for each slot        ─▶ {"won": …, "chain": …, "ms": …}, or {"error": …}, which is the last one

It appends an entry of its own to each slot, one after another. The next one follows the entry that won.

Next: ../store/disk_store.py.
"""

import json
import signal
import sys
from time import perf_counter
from typing import Any

from ..errors import Fenced, PlanstepError, reason
from .entry import BEGIN, NO_CHAIN, Entry, Owner, seal
from .registry import open_shared_log
from .shared_log import Position, SharedLog

LARGE_EACH = 20
"""One slot in so many of an object store has a large entry: a server may judge those by another code."""
_SMALL, _LARGE = 1_000, 4 << 20


def is_large(log: SharedLog, turn: int) -> bool:
    """Returns whether the entries that contend for a slot are large."""
    return log.objects is not None and turn % LARGE_EACH == 0


def _entry_for(turn: int, before: bytes, store_id: bytes, name: str, large: bool) -> Entry:
    """Returns the first turn of a term: what machines that take over contend for."""
    nonce = name.encode().ljust(16, b"-")
    payload = nonce * ((_LARGE if large else _SMALL) // len(nonce))
    return seal(BEGIN, store_id, Owner(turn, nonce), turn, before, 0, payloads=[payload])


def _contend(log: SharedLog, mine: Entry) -> tuple[bool, bytes]:
    """Appends an entry; returns whether its slot is ours, and the chain of the entry that a look there shows.

    b"" if it shows none, though the slot was taken.
    """
    try:
        log.append(mine)
    except Fenced:
        entries = log.read(1, 0)
        return False, entries[0].chain if entries else b""
    return True, mine.chain


def _work(url: str, name: str, timeout: float) -> None:
    log, root = open_shared_log(url, None, timeout)
    log.open(Position())
    print("ready", flush=True)
    turn, chain = 1, NO_CHAIN
    mine = _entry_for(turn, chain, root.store_id, name, is_large(log, turn))
    for _ in sys.stdin:
        began = perf_counter()
        won, chain = _contend(log, mine)
        ms = (perf_counter() - began) * 1_000
        _answer({"won": won, "chain": chain.hex(), "ms": ms})
        turn += 1
        mine = _entry_for(turn, chain or NO_CHAIN, root.store_id, name, is_large(log, turn))


def _answer(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    """Runs a contender: URL, its name, and the time-out of its log's calls."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal's group: the parent ends it
    url, name, timeout = sys.argv[1:]
    try:
        _work(url, name, float(timeout))
    except PlanstepError as error:
        _answer({"error": reason(error), "kind": type(error).__name__})


if __name__ == "__main__":
    main()
