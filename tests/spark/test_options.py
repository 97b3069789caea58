"""Tests the options of the data source, and the errors for those that are wrong."""

import os

import pytest
from pyspark.sql.types import StructType

from planstep.errors import InvalidName, NotSupported
from planstep.spark.options import read_options, stream_write_options, write_options
from planstep.spark.source import Source


def test_what_is_not_given() -> None:
    options = read_options({"path": "shop.planstep", "topic": "clicks"})
    assert options.path == os.path.abspath("shop.planstep")
    assert (options.kind, options.name, options.step) == ("topic", "clicks", None)
    assert (options.rows, options.infer_records, options.permissive) == (10_000, 1000, False)
    assert (options.start, options.end, options.partitions) == (None, None, None)


def test_all_that_can_be_given() -> None:
    options = read_options(
        {
            "path": "file:///data/shop",
            "TOPIC": "clicks",
            "asofstep": "7",
            "startingOffset": '{"0": 5, "2": 7}',
            "endingOffset": "9",
            "Partitions": "3, 0",
            "columns": "value, offset",
            "format": "JSON",
            "mode": "permissive",
            "inferRecords": "10",
            "numPartitions": "3",
            "rowsPerBatch": "100",
        }
    )
    assert options.path == "/data/shop"
    assert (options.step, options.start, options.end) == (7, {0: 5, 2: 7}, 9)
    assert (options.partitions, options.columns) == ((0, 3), ("value", "offset"))
    assert (options.format, options.permissive) == ("json", True)
    assert (options.infer_records, options.num_partitions, options.rows) == (10, 3, 100)


@pytest.mark.parametrize(
    "text, prefix",
    [("u1", "u1"), ('["2024", 7]', ("2024", 7)), ('"[x"', "[x"), ('[["a"]]', (("a",),))],
)
def test_prefixes_of_keys(text: str, prefix: object) -> None:
    assert read_options({"path": "p", "table": "t", "keyPrefix": text}).prefix == prefix


@pytest.mark.parametrize(
    "options, message",
    [
        ({"topic": "t"}, "name the store's folder"),
        ({"path": "p"}, "name one of both"),
        ({"path": "p", "topic": "t", "table": "t"}, "name one of both"),
        ({"path": "p", "topic": "a,b"}, "one topic or table a DataFrame"),
        ({"path": "p", "topic": "t", "startingOfset": "1"}, "did you mean startingOffset"),
        ({"path": "p", "topic": "t", "zzz": "1"}, "there are path, topic, table, step"),
        ({"path": "p", "topic": "t", "queryId": "1"}, "no option 'queryId' for reading"),
        (
            {"path": "p", "topic": "t", "keyPrefix": "u"},
            "the option keyPrefix does not apply to a topic",
        ),
        ({"path": "p", "table": "t", "partitions": "0"}, "the option partitions does not apply"),
        ({"path": "p", "topic": "t", "asOfStep": "-1"}, "step is a whole number, 0 or more"),
        ({"path": "p", "topic": "t", "rowsPerBatch": "0"}, "rowsPerBatch is a whole number, 1 or"),
        (
            {"path": "p", "topic": "t", "startingOffset": "x"},
            "startingOffset is an offset, or JSON",
        ),
        ({"path": "p", "topic": "t", "endingOffset": '{"0": "x"}'}, "endingOffset is an offset"),
        ({"path": "p", "topic": "t", "endingOffset": '{"0": 1, "0": 2}'}, "each partition once"),
        ({"path": "p", "topic": "t", "startingOffset": '{"0": 1, "00": 2}'}, "each partition once"),
        ({"path": "p", "topic": "t", "step": str(10**30)}, "and at most 9223372036854775807"),
        ({"paths": '["a", "b"]', "topic": "t"}, "load one path at a time"),
        ({"path": "p", "topic": "t", "startingOffset": "{0: 1}"}, "startingOffset is an offset"),
        ({"path": "p", "topic": "t", "partitions": "0,a"}, "partitions is numbers"),
        ({"path": "p", "topic": "t", "columns": "value,"}, "columns is names of columns"),
        ({"path": "p", "topic": "t", "columns": "key,key"}, "columns is names of columns"),
        ({"path": "p", "topic": "t", "format": "avro"}, "format is one of bytes, utf8, json"),
        ({"path": "p", "topic": "t", "mode": "drop"}, "mode is one of FAILFAST, PERMISSIVE"),
        ({"path": "p", "table": "t", "keyPrefix": "[1"}, "keyPrefix is a text, or JSON"),
        ({"path": "p", "table": "t", "keyPrefix": "[" * 9999}, "keyPrefix is a text, or JSON"),
        (
            {"path": "p", "table": "t", "inferRecords": str(1 << 63)},
            "inferRecords is a whole number",
        ),
    ],
)
def test_wrong_options_for_reading(options: dict[str, str], message: str) -> None:
    with pytest.raises((ValueError, InvalidName), match=message):
        read_options(options)


def test_options_for_writing() -> None:
    options = write_options(
        {"path": "p", "table": "t", "queryid": "q", "batchId": "4", "wait": "1.5"}
    )
    assert (options.kind, options.query, options.batch, options.wait) == ("table", "q", 4, 1.5)
    assert write_options({"path": "p", "table": "t"}).query is None


@pytest.mark.parametrize(
    "options, message",
    [
        ({"queryId": "q"}, "queryId and batchId together"),
        ({"batchId": "1"}, "queryId and batchId together"),
        ({"queryId": "", "batchId": "1"}, "text of 1 to 200 bytes"),
        ({"queryId": "q", "batchId": "x"}, "batchId is a whole number"),
        ({"queryId": "q", "batchId": str(1 << 63)}, "batchId is a whole number"),
        ({"wait": "-1"}, "wait is a number of seconds"),
        ({"asOfStep": "1"}, "no option 'asOfStep' for writing"),
        ({"zzz": "1"}, "there are path, topic, table, queryId, batchId, add, wait$"),
        ({"transactions": "1"}, "there are path"),
    ],
)
def test_wrong_options_for_writing(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write_options({"path": "p", "topic": "t", **options})


def test_options_for_writing_a_stream() -> None:
    options = stream_write_options(
        {"path": "p", "table": "t", "checkpointLocation": "c", "queryName": "n", "add": "true"}
    )
    assert (options.query, options.batch, options.add) == (None, None, True)
    assert stream_write_options({"path": "p", "topic": "t", "queryid": "q"}).query == "q"
    with pytest.raises(ValueError, match="batchId does not apply to a stream"):
        stream_write_options({"path": "p", "topic": "t", "queryId": "q", "batchid": "1"})
    with pytest.raises(ValueError, match="1 to 200 bytes"):
        stream_write_options({"path": "p", "topic": "t", "queryId": ""})


def test_output_mode_complete() -> None:
    with pytest.raises(NotSupported, match="foreachBatch, with mode update"):
        Source({"path": "p", "table": "t"}).streamWriter(StructType(), overwrite=True)
