"""Plays Spark's part without a Spark, in a process that has no store open."""

import io
import os
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from planstep.spark import sink
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
    _loaded[len(_loaded)] = pickle.dumps(source), declared
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

    def __init__(self, partition: int, attempt: int) -> None:
        self.partition, self.attempt = partition, attempt

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
