"""Opens a store with existing data on a disk whose reads or opens fail, and checks the error.

    the day before ─▶ killed, or closed ─▶ opened below failing files ─ refused: an error that blames no bytes
                                                                     │    └ failed once: the next try opens
                                                                     └ open: goes on with load.py

Data that could not be read is not damaged. Corruption or FormatError is the wrong error, because a user may
react by throwing the store away; a store that opens with less data is wrong too.

Next: ../rows/ioerr.py.
"""

from collections.abc import Callable

from ....api.engine import Engine
from ....api.open_engine import Mode
from ....errors import HostStopped
from .engines import abandon
from .load import EACH, Load, Log

BLAMING = ("Corruption", "FormatError")
BEGIN = 2 * EACH
"""The number of the first transaction of the day after."""


def day_before(db: Engine, mode: Mode, log: Log, killed: bool) -> None:
    """Fills a store on a healthy disk, then closes it or leaves it with its log ahead of its tables."""
    load = Load(db, mode, log)
    if load.create():
        load.work()
    if log.refused or log.unknown or log.errors:
        log.wrong.append(f"the disk is well, and calls fail: {log.errors}")
    if killed:
        abandon(db)
    else:
        db.close()


def opened(attempt: Callable[[], Engine], log: Log, once: bool) -> tuple[Engine | None, bool]:
    """Opens the store; returns (the engine, whether it was refused at first). `once`: the retry must succeed."""
    engines: list[Engine] = []
    for attempts in range(2 if once else 1):
        error = log.failed(lambda: engines.append(attempt()))
        if error is None:
            return engines[0], attempts > 0
        if isinstance(error, HostStopped):
            return None, True
    if once:
        log.wrong.append(f"the disk failed once, and the store does not open: {log.errors}")
    return None, True


def blamed(log: Log) -> list[str]:
    """Lists failures that were reported as damage."""
    return [
        f"the disk failed, and {log.errors[name]} times it was told as {name}"
        for name in BLAMING
        if name in log.errors
    ]
