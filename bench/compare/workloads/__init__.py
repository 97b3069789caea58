"""Lists the workloads. Each prepares, runs and verifies itself; a run that did not verify has no figures.

    reshard      the talk's model task            interval      the price of a commit interval
    plain        the same without transactions    chain         three stages, one behind the other
    transfer     consume one, update two, write   contention    hot rows, a hot consumer
    held-open    one open beside quick ones       plain-beside  plain writes beside transactions
    faults       a session dropped, an owner killed

Next: base.py.
"""

from importlib import import_module

from .base import Workload

NAMES = (
    "reshard",
    "plain",
    "interval",
    "chain",
    "transfer",
    "contention",
    "held-open",
    "plain-beside",
    "faults",
)


def workload(name: str) -> Workload:
    """Returns a workload by its name. ValueError for a name that is not in NAMES."""
    if name not in NAMES:
        raise ValueError(f"no workload {name!r}: there are {', '.join(NAMES)}")
    made: Workload = import_module(f".{name.replace('-', '_')}", __name__).WORKLOAD
    return made
