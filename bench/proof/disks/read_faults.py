"""A store with something to read, opened over a disk that cannot: what a read or an open that fails may do.

    the day before ─▶ killed, or closed ─▶ opened below failing files ─ refused: an error that blames no bytes
                                                                     │    └ failed once: the next try opens
                                                                     └ open: goes on with concurrent_load.py

What could not be read is not damaged: Corruption or FormatError, that somebody may act upon by throwing the
store away, is the wrong answer, and so is a store that opens with less.

Next: ../rows/ioerr.py.
"""

from collections.abc import Callable

from ....api.engine import Engine
from ....api.open_engine import Mode
from ....errors import HostStopped, PlanstepError
from .concurrent_load import EACH, Log, Shift
from .engines import abandon

BLAMING = ("Corruption", "FormatError")
BEGIN = 2 * EACH
"""The number of the first transaction of the day after."""


def day_before(db: Engine, mode: Mode, log: Log, killed: bool) -> None:
    """On a disk that is well; the store is left with its log behind its tables, or closed."""
    shift = Shift(db, mode, log)
    if shift.create():
        shift.work()
    if log.refused or log.unknown or log.errors:
        log.wrong.append(f"the disk is well, and calls fail: {log.errors}")
    if killed:
        abandon(db)
    else:
        db.close()


def opened(attempt: Callable[[], Engine], log: Log, once: bool) -> tuple[Engine | None, bool]:
    """(the engine, whether it was refused at first). `once`: the second attempt has to succeed."""
    refused = False
    for _ in range(2 if once else 1):
        try:
            return attempt(), refused
        except HostStopped as error:
            log.wrong.append(f"the engine met a bug of its own: {error!r}")
            return None, True
        except PlanstepError as error:  # it does not open on such a disk, and says so
            log.saw(error)
            refused = True
    if once:
        log.wrong.append(f"the disk failed once, and the store does not open: {log.errors}")
    return None, refused


def blamed(log: Log) -> list[str]:
    """Failures that were told as damage."""
    return [
        f"the disk failed, and {log.errors[name]} times it was told as {name}"
        for name in BLAMING
        if name in log.errors
    ]
