"""Lists the workloads. Each prepares, runs and verifies itself; a run that did not verify has no figures.

    reshard      the talk's model task            interval      the price of a commit interval
    move         the same as fast as it goes      chain         three stages, one behind the other
    plain        the same without transactions
    small        small transactions with state    contention    hot rows, a hot consumer
    held-open    one open beside quick ones       plain-beside  plain writes beside transactions
    faults       a session dropped, an owner killed
    log-batching rising rates, batched logs       aborts        ids of aborted transactions
    reshard-spark   reshard by Spark, by name only

Next: base.py.
"""

from .aborts import Aborts
from .base import Workload
from .chain import Chain
from .contention import Contention
from .faults import Faults
from .held_open import HeldOpen
from .interval import Interval
from .log_batching import LogBatching
from .move import Move
from .plain import Plain
from .plain_beside import PlainBeside
from .reshard import Reshard
from .reshard_spark import ReshardSpark
from .small import Small

WORKLOADS: dict[str, Workload] = {
    one.name: one
    for one in (
        *(Reshard(), Move(), Plain(), Interval(), Chain(), Small()),
        *(Contention(), HeldOpen(), PlainBeside(), Faults()),
        *(LogBatching(), Aborts(), ReshardSpark()),
    )
}
NAMES = tuple(WORKLOADS)


def workload(name: str) -> Workload:
    """Returns a workload by its name. ValueError for a name that is not in NAMES."""
    if name not in WORKLOADS:
        raise ValueError(f"no workload {name!r}: there are {', '.join(NAMES)}")
    return WORKLOADS[name]
