"""PySpark's connection to its Java: PySpark keeps it, and the Java, until Python ends.

    take_gateway ─▶ the connection, for the caller to shut down; PySpark's next session starts a Java of its own

PySpark has no public name for it, so this one function uses the names that PySpark keeps to itself.

Next: session.py.
"""

from typing import Any


def take_gateway() -> Any:
    """Takes the connection away from PySpark, if no session runs any more; None where there is none."""
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    return gateway
