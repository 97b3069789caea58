"""Runs real S3 servers on this machine: those that `make servers` has fetched, by Go, into the environment.

    python -m planstep.bench.proof.s3_servers      go install ─▶ <Python's environment>/servers/{versitygw,minio}

A server listens on 127.0.0.1, at a port below those that the kernel hands out. Its data lie in a folder of the
caller's, and it ends with the caller.

Left out: Kafka's broker, which `make peers` fetches (../compare/systems/apache_kafka_jars.py).

Next: s3_wire.py.
"""

import hashlib
import hmac
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from ..children import last_words
from ..compare.systems.servers import end, start

KEY, SECRET, REGION = "a-key-id", "a-secret", "us-east-1"
_PORTS = range(20_000, 32_000)
_READY_S = 120.0


class S3Server(NamedTuple):
    """A server. `words` returns the command that starts it: program, address, folder of its data."""

    name: str
    module: str
    version: str
    words: Callable[[str, str, str], list[str]]

    @property
    def program(self) -> Path:
        return folder() / self.name

    def unavailable(self) -> str:
        """Says what this machine lacks to run it; "" if nothing."""
        return "" if self.program.exists() else f"{self.name} is not here: make servers"


def folder() -> Path:
    """Returns the folder of the programs, which may not exist yet."""
    return Path(sys.prefix) / "servers"


SERVERS = (
    S3Server(
        "versitygw",
        "github.com/versity/versitygw/cmd/versitygw",
        "v1.8.0",
        lambda program, address, data: [
            program,
            "--port",
            address,
            "--region",
            REGION,
            "posix",
            data,
        ],
    ),
    S3Server(
        "minio",
        "github.com/minio/minio",
        "v0.0.0-20260212201848-7aac2a2c5b7c",
        lambda program, address, data: [program, "server", "--address", address, "--quiet", data],
    ),
)
BY_NAME = {server.name: server for server in SERVERS}


def fetch(server: S3Server) -> str:
    """Builds a server that is not here; returns in words what became of that."""
    if not server.unavailable():
        return "ready"
    go = shutil.which("go")
    if go is None:
        return "skipped: there is no Go here to build it with"
    print(f"{server.name} {server.version}: building it takes minutes, and 3 GB of Go's cache")
    words = [go, "install", f"{server.module}@{server.version}"]
    built = subprocess.run(words, env={**os.environ, "GOBIN": os.fspath(folder())}, check=False)
    return "failed" if built.returncode else "ready"


def _free_port() -> int:
    """Returns a free port of 127.0.0.1 that the kernel gives to nobody by itself."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def running(server: S3Server, home: Path) -> Iterator[str]:
    """Runs a server in the body, and yields its address. OSError if it does not start."""
    data, output = home / "data", home / "server.txt"
    data.mkdir(parents=True)
    address = f"127.0.0.1:{_free_port()}"
    names = ("ROOT_ACCESS_KEY", "MINIO_ROOT_USER"), ("ROOT_SECRET_KEY", "MINIO_ROOT_PASSWORD")
    secrets = {
        name: value for pair, value in zip(names, (KEY, SECRET), strict=True) for name in pair
    }
    words = server.words(os.fspath(server.program), address, os.fspath(data))
    environment = {**os.environ, **secrets, "HOME": os.fspath(home)}
    process = start(words, output, environment=environment)
    try:
        _wait_ready(process, f"http://{address}", output)
        yield f"http://{address}"
    finally:
        end(process, signal.SIGTERM)


def _wait_ready(process: "subprocess.Popen[bytes]", address: str, output: Path) -> None:
    until = time.monotonic() + _READY_S
    while True:
        with suppress(OSError):  # URLError, HTTPError
            request("GET", f"{address}/")
            return
        if process.poll() is not None or time.monotonic() > until:
            raise OSError(f"{output.parent.name} did not start: {last_words(output)}")
        time.sleep(0.05)


def request(method: str, url: str) -> bytes:
    """Sends a request without a body, and returns the answer; OSError for any but a good one."""
    place = urlsplit(url)
    headers = {
        "host": place.netloc,
        "x-amz-content-sha256": hashlib.sha256().hexdigest(),
        "x-amz-date": datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"),
    }
    headers["authorization"] = signature(method, f"{place.path}?{place.query}", headers)
    asked = urllib.request.Request(url, method=method, headers=headers)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return bytes(answer.read())


def signature(method: str, path: str, headers: Mapping[str, str]) -> str:
    """Returns AWS's signature, version 4, of a request; names of headers are in lower case, and in order."""
    path, _, query = path.partition("?")
    parts = sorted(one if "=" in one else f"{one}=" for one in query.split("&") if one)
    signed = ";".join(headers)
    lines = [f"{name}:{value.strip()}" for name, value in headers.items()]
    body = headers["x-amz-content-sha256"]
    asked = "\n".join([method, path, "&".join(parts), *lines, "", signed, body])
    now = headers["x-amz-date"]
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(asked.encode()).hexdigest()])
    key = f"AWS4{SECRET}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    credential = f"Credential={KEY}/{scope}"
    return f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={signed}, Signature={key.hex()}"


def environment(address: str) -> dict[str, str]:
    """Returns the variables that lead a log in a bucket to a server."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
    }


def main() -> int:
    """Fetches all; returns the exit status."""
    ends = {server.name: fetch(server) for server in SERVERS}
    for name, how in ends.items():
        print(f"{name}: {how}")
    return int("failed" in ends.values())


if __name__ == "__main__":
    sys.exit(main())
