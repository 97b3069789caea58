"""Skips tests of a peer where this machine lacks it; PLANSTEP_PEERS=required, of `make test-peers`, fails them."""

import os

import pytest

from planstep.bench.compare.systems import ENTRIES

_REQUIRED = os.environ.get("PLANSTEP_PEERS") == "required"

long = pytest.mark.skipif(not _REQUIRED, reason="it takes a minute; make test-peers runs it")
"""The mark of tests that start servers of their own."""


def needs(name: str) -> list[pytest.MarkDecorator]:
    """Returns the marks of tests that need the system `name`."""
    lacking = ENTRIES[name].unavailable()
    assert not (_REQUIRED and lacking), f"{name}: {lacking}"
    return [pytest.mark.peer, pytest.mark.skipif(bool(lacking), reason=lacking or "it is here")]
