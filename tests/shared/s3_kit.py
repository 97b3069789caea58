"""Shares an S3 server between tests: moto's, in a process of its own, or a real one; and logs in its buckets."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kit import Child

from planstep.bench.proof.s3_servers import environment, request
from planstep.shared.bucket_log import BucketObjects, open_bucket_log
from planstep.shared.objects_log import Objects, ObjectsLog
from planstep.shared.shared_log import Root

MOTO = """
import logging, os, sys
os.environ["MOTO_S3_DEFAULT_MAX_KEYS"] = "50"  # a page of a list
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
_NUMBERS = itertools.count(1)


@contextmanager
def moto_server() -> Iterator[str]:
    """Runs an S3 server in the body, and yields its address."""
    with Child(MOTO) as child:
        yield f"http://127.0.0.1:{child.line()}"


def use_server(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Leads obstore to a server, as users do it."""
    for name, value in environment(address).items():
        monkeypatch.setenv(name, value)


def new_bucket(server: str) -> str:
    """Makes a bucket, and returns its name."""
    name = f"bucket-{next(_NUMBERS)}"
    request("PUT", f"{server}/{name}")
    return name


class InBucket:
    """A log in a bucket, and ways around its rules."""

    def __init__(self, server: str, root: Root) -> None:
        """`server`: the address behind any wire."""
        self.bucket = new_bucket(server)
        self.url = f"s3://{self.bucket}/shop"
        open_bucket_log(self.url, root)[0].close()
        self._objects = BucketObjects(self.url)

    def open(self, timeout: float = 0.0) -> ObjectsLog:
        return ObjectsLog(self._objects, self.url, timeout)

    def objects(self) -> Objects:
        return self._objects

    def write(self, name: str, data: bytes) -> None:
        self._objects._client().put(name, data, mode="overwrite")

    def remove(self, name: str) -> None:
        self._objects.remove(name)
