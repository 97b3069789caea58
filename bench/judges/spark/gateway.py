"""Takes PySpark's connection to its Java, since PySpark keeps both until Python ends.

    take_gateway ─▶ the connection, for the caller to shut down; PySpark's next session starts a Java of its own

PySpark has no public name for it, so this one function uses private names.

Next: session.py.
"""

from typing import Any


def take_gateway() -> Any:
    """Takes the connection away from PySpark, once no session runs; returns it, or None."""
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    return gateway
