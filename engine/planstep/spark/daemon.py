"""Starts Spark's Python workers with the data source imported already.

    spark.python.daemon.module=planstep.spark.daemon ─▶ this process imports once ─ fork ─▶ each worker

Spark forks its workers from one process, and uses a worker again only if its query read all of its rows. After a
`limit` it starts a new one, which would import all anew. Importing here costs a session the same once.

After each task a worker collects garbage, which walks through all that it has imported: some 50 ms of CPU a task,
most of what an empty task costs in Python. What was imported here is frozen: no collection looks at it.

Next: reading.py.
"""

import gc
from importlib import import_module

from pyspark import daemon

from ..api import optional_packages

if __name__ == "__main__":
    for module in ("pyspark.worker", "planstep.spark.source"):
        import_module(module)
    optional_packages.pyarrow().scalar(0)  # Arrow imports pandas then, where there is one
    gc.collect()
    gc.freeze()
    daemon.manager()
