"""Plays Spark's part without a Spark, in a process that has no store open."""

import dataclasses
import io
import json
import os
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.datasource_internal import ReadLimitRegistry
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.worker_util import pickleSer

from planstep.spark import sink, stream_sink
from planstep.spark.source import Source

_loaded: dict[int, tuple[bytes, StructType]] = {}


class Refused:
    """Carries an error to the other process, which raises it with its text, whatever its constructor takes."""

    def __init__(self, error: BaseException) -> None:
        self.kind, self.text = type(error), str(error)

    def again(self) -> BaseException:
        error = self.kind.__new__(self.kind)
        error.args = (self.text,)
        vars(error)["message"] = self.text  # of UnknownName
        return error


def answer(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except Exception as error:
        return Refused(error)


def load(folder: str, schema: StructType | None, options: dict[str, str]) -> tuple[int, StructType]:
    """Plays load(): returns the number under which `read` finds it, and the schema."""
    os.environ["SPARK_LOCAL_DIRS"] = folder
    source = Source(options)
    declared = source.schema() if schema is None else schema
    _loaded[len(_loaded)] = pickleSer.dumps(source), declared
    return len(_loaded) - 1, declared


def read(number: int) -> bytes:
    """Plays an action: returns all batches, as an Arrow stream."""
    source, declared = _loaded[number]
    reader = pickle.loads(pickle.dumps(pickle.loads(source).reader(schema=declared)))
    out = io.BytesIO()
    with pa.ipc.new_stream(out, to_arrow_schema(declared, timezone="UTC")) as writer:
        for part in pickle.loads(pickle.dumps(reader.partitions())):
            for batch in reader.read(part):
                writer.write_batch(batch)
    return out.getvalue()


_jobs: dict[int, tuple[bytes, list[Any]]] = {}


class Context:
    """Plays the parts of Spark's TaskContext that a sink uses."""

    def __init__(self, partition: int, attempt: int, names: dict[str, str] | None = None) -> None:
        self.partition, self.attempt, self.names = partition, attempt, names or {}

    def getLocalProperty(self, name: str) -> str | None:
        return self.names.get(name)

    def get(self) -> "Context":
        return self

    def partitionId(self) -> int:
        return self.partition

    def taskAttemptId(self) -> int:
        return self.attempt


def begin(options: dict[str, str], schema: StructType, overwrite: bool = False) -> int:
    """Begins a write job."""
    _jobs[len(_jobs)] = pickle.dumps(Source(options).writer(schema, overwrite)), []
    return len(_jobs) - 1


def task(job: int, partition: int, stream: bytes) -> None:
    """Runs one task with its record batches."""
    writer, messages = _jobs[job]
    sink.TaskContext = Context(partition, len(messages))
    batches = iter(pa.ipc.open_stream(stream)) if stream else iter(())
    messages.append(pickle.dumps(pickle.loads(writer).write(batches)))


def commit(job: int) -> None:
    """Commits; the tasks' messages come in any order."""
    writer, messages = _jobs[job]
    pickle.loads(writer).commit([pickle.loads(m) for m in reversed(messages)])


def abort(job: int) -> None:
    pickle.loads(_jobs[job][0]).abort([])


_streams: dict[int, tuple[StructType, DataSourceStreamReader]] = {}


def stream(options: dict[str, str], schema: StructType | None) -> tuple[int, StructType]:
    """Plays load() and start(): makes a source of a stream, as the process beside the driver has it."""
    source = Source(options)
    declared = source.schema() if schema is None else schema
    reader = pickle.loads(pickleSer.dumps(source)).streamReader(declared)
    _streams[len(_streams)] = declared, reader
    return len(_streams) - 1, declared


def ask(number: int, method: str, *texts: str) -> str:
    """Asks a stream's source with offsets as JSON, as Spark does."""
    reader = _streams[number][1]
    args = list(map(json.loads, texts))
    if method == "latestOffset":
        args[1] = ReadLimitRegistry().get(args[1])
    return json.dumps(getattr(reader, method)(*args))


def limit(number: int) -> str:
    default = _streams[number][1].getDefaultReadLimit()
    return json.dumps({**dataclasses.asdict(default), "_type": type(default).__name__})


def batch(number: int, start: str, end: str) -> tuple[int, bytes]:
    """Plays a batch: returns the number of its tasks, and what they read as an Arrow stream."""
    declared, reader = _streams[number]
    parts = pickle.loads(pickle.dumps(reader.partitions(json.loads(start), json.loads(end))))
    task = pickle.loads(pickle.dumps(reader))
    out = io.BytesIO()
    with pa.ipc.new_stream(out, to_arrow_schema(declared, timezone="UTC")) as writer:
        for part in parts:
            for read in task.read(part):
                writer.write_batch(read)
    return len(parts), out.getvalue()


_sinks: dict[int, tuple[dict[str, str], StructType, dict[int, list[Any]]]] = {}


def stream_begin(options: dict[str, str], schema: StructType) -> int:
    """Begins a streaming query's sink."""
    _sinks[len(_sinks)] = options, schema, {}
    return len(_sinks) - 1


def stream_task(
    sink_number: int, batch_number: int, query: str, partition: int, stream: bytes
) -> None:
    """Runs one task of a batch; `query` is the id that Spark gives."""
    options, schema, batches = _sinks[sink_number]
    writer = pickle.loads(pickle.dumps(Source(options).streamWriter(schema, False)))
    messages = batches.setdefault(batch_number, [])
    names = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch_number)}
    context = Context(partition, len(messages), names)
    sink.TaskContext = stream_sink.TaskContext = context
    messages.append(pickle.dumps(writer.write(iter(pa.ipc.open_stream(stream)))))


def stream_end(sink_number: int, batch_number: int, method: str) -> None:
    """Commits or aborts a batch, in a writer of its own, as Spark does; one task has failed."""
    options, schema, batches = _sinks[sink_number]
    writer = pickle.loads(pickle.dumps(Source(options))).streamWriter(schema, False)
    messages = [pickle.loads(m) for m in reversed(batches.pop(batch_number, []))]
    getattr(writer, method)([*messages, None], batch_number)
