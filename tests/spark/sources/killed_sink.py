"""Runs a write job's steps in this process, whose sink kills it: `python killed_sink.py PATH df|stream`."""

import io
import sys

import elsewhere
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from planstep.bench.proof.spark.points import DefaultSource


def main(path: str, kind: str) -> None:
    elsewhere.Source = DefaultSource
    table = pa.table({"key": ["a", "b"] * 500, "value": [str(n) for n in range(1000)]})
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    schema = from_arrow_schema(table.schema)
    if kind == "stream":
        number = elsewhere.stream_begin({"path": path, "topic": "t"}, schema)
        elsewhere.stream_task(number, 0, "numbers", 0, out.getvalue())
        elsewhere.stream_end(number, 0, "commit")
        return
    options = {"path": path, "topic": "t", "queryId": "numbers", "batchId": "0"}
    number = elsewhere.begin(options, schema)
    elsewhere.task(number, 0, out.getvalue())
    elsewhere.commit(number)


if __name__ == "__main__":
    main(*sys.argv[1:])
