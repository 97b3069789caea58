"""Plans kills: the files that tell a phase of a write which process to kill.

A folder has the kills to come, a file each: NUMBER.PHASE.TARGET.NTH. The first one strikes when its phase is
reached for the NTH time; whoever removes the file kills. Several processes may be at it.

Next: points.py, which has the phases.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

VARIABLE = "PLANSTEP_PROOF_KILLS"
"""The environment's variable that names the folder."""
NO_FENCE = "no-fence"
"""A file of this name plants the bug: no fence stops a batch."""
DRIVER, JAVA = "driver.pid", "java.pid"


class Kill(NamedTuple):
    """A kill to come: of the process that reaches the phase ("self"), of driver or java, or of "all"."""

    number: int
    phase: str
    target: str
    nth: int = 1

    def save(self, folder: Path) -> None:
        Path(folder, ".".join(map(str, self))).touch()


def planned(folder: Path) -> Kill | None:
    """Returns the next kill."""
    names = sorted(file.name for file in folder.iterdir() if file.name.count(".") == 3)
    if not names:
        return None
    number, phase, target, nth = names[0].split(".")
    return Kill(int(number), phase, target, int(nth))


def claim(folder: Path, kill: Kill) -> bool:
    """Counts a kill down; returns whether it strikes now, and here."""
    file = Path(folder, ".".join(map(str, kill)))
    with suppress(FileNotFoundError):
        if kill.nth > 1:
            file.rename(Path(folder, ".".join(map(str, kill._replace(nth=kill.nth - 1)))))
        else:
            file.unlink()
            return True
    return False


def reached(phase: str) -> None:
    folder = Path(os.environ[VARIABLE])
    kill = planned(folder)
    if kill is not None and kill.phase == phase and claim(folder, kill):
        strike(folder, kill.target, os.getpid())


def strike(folder: Path, target: str, own: int) -> None:
    """Kills what a kill names; `own` is "self"."""
    java, driver = (int(Path(folder, name).read_text()) for name in (JAVA, DRIVER))
    pids = {"self": [own], "java": [java], "driver": [driver], "all": [java, driver, own]}[target]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
