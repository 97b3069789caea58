"""Starts Spark's Python workers with the data source imported already.

    spark.python.daemon.module=planstep.spark.daemon ─▶ this process imports once ─ fork ─▶ each worker

Spark forks its workers from one process, and uses a worker again only if its query read all of its rows. After a
`limit` it starts a new one, which would import all anew. Importing here costs a session the same once.

Next: reading.py.
"""

from importlib import import_module

from pyspark import daemon

from ..api import optional_packages

if __name__ == "__main__":
    import_module("planstep.spark.source")
    optional_packages.pyarrow().scalar(0)  # Arrow imports pandas then, where there is one
    daemon.manager()
