"""Gives these tests each kind of shared log."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from s3_kit import InBucket, Wire, moto_server, use_server, wire_to
from shared_kit import ROOT, Backing, InFolder, InMemory


@pytest.fixture(params=["memory", "folder", "bucket"])
def backing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backing]:
    """An empty log in memory, one in a folder, and one in a bucket."""
    if request.param == "memory":
        yield InMemory()
    elif request.param == "bucket":
        yield request.getfixturevalue("bucket")
    else:
        folder = InFolder(tmp_path / "shop")
        yield folder
        folder.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[InFolder]:
    """An empty log in a folder."""
    folder = InFolder(tmp_path / "shop")
    yield folder
    folder.close()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of an S3 server."""
    for package in ("obstore", "moto", "flask_cors"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    with moto_server() as address:
        yield address


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> InBucket:
    """An empty log in a bucket."""
    use_server(monkeypatch, server)
    return InBucket(server, ROOT)


@pytest.fixture
def wire(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """A wire to the S3 server, on which nothing goes wrong yet, and which obstore uses."""
    with wire_to(server) as wire:
        use_server(monkeypatch, wire.address)
        yield wire
