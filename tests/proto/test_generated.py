"""Tests that the committed protobuf code is generated from the .proto file."""

from importlib import resources
from pathlib import Path

from grpc_tools import protoc

FOLDER = Path(__file__).parents[2] / "proto"


def test_regenerating_changes_nothing(tmp_path: Path) -> None:
    include = str(resources.files("grpc_tools") / "_proto")
    arguments = ["protoc", f"-I{FOLDER}", f"-I{include}", f"--python_out={tmp_path}"]
    assert protoc.main([*arguments, f"--pyi_out={tmp_path}", "records.proto"]) == 0
    for name in ("records_pb2.py", "records_pb2.pyi"):
        assert (tmp_path / name).read_text() == (FOLDER / name).read_text()
