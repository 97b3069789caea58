"""Provides the data source "filtering", whose reader takes filters as Spark's documentation says."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "filtering"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader()


class Reader(DataSourceReader):
    """Reads the numbers 0 to 9, or of them what equals a filter's value."""

    def __init__(self) -> None:
        self.wanted: list[Any] = []

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        for each in filters:
            if isinstance(each, EqualTo):
                self.wanted.append(each.value)
            else:
                yield each

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((n,) for n in range(10) if all(n == value for value in self.wanted))
