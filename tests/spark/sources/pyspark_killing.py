"""Provides the data source "killing", whose sink kills Spark at the worst moments. Spark finds it by its name."""

import os
import signal
from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from planstep.spark.options import write_options
from planstep.spark.sink import Writer
from planstep.spark.source import Source


class DefaultSource(Source):
    """`kill`: "before" or "after" the commit; `jvm` and `driver`: processes to kill."""

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = dict(options.items())
        self.plan = {name: settings.pop(name, "") for name in ("kill", "jvm", "driver")}
        super().__init__(settings)

    @classmethod
    def name(cls) -> str:
        return "killing"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return KillingWriter(self.options, schema, self.plan)


class KillingWriter(Writer):
    def __init__(
        self, options: Mapping[str, str], schema: StructType, plan: dict[str, str]
    ) -> None:
        super().__init__(write_options(options), schema)
        self.plan = plan

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.plan["kill"] == "before":
            self.end()
        super().commit(messages)
        self.end()

    def end(self) -> None:
        """Kills the driver, Spark's JVM, and this process."""
        for process in (self.plan["driver"], self.plan["jvm"], str(os.getpid())):
            os.kill(int(process), signal.SIGKILL)
