"""Skips tests of a peer where this machine lacks it; PLANSTEP_PEERS=required, of `make test-peers`, fails them."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from planstep.bench.compare.systems import ENTRIES, servers

_REQUIRED = os.environ.get("PLANSTEP_PEERS") == "required"

long = pytest.mark.skipif(not _REQUIRED, reason="it takes a minute; make test-peers runs it")
"""The mark of tests that start servers of their own."""


def needs(name: str) -> list[pytest.MarkDecorator]:
    """Returns the marks of tests that need the system `name`."""
    lacking = ENTRIES[name].unavailable()
    assert not (_REQUIRED and lacking), f"{name}: {lacking}"
    return [pytest.mark.peer, pytest.mark.skipif(bool(lacking), reason=lacking or "it is here")]


@contextmanager
def taken_port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Yields a port that another listens on; the next server to be started is given it first."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port: int = other.getsockname()[1]
        ports, free_port = [port], servers.free_port
        monkeypatch.setattr(servers, "free_port", lambda: ports.pop() if ports else free_port())
        yield port
        assert not ports
