"""Fetches Apache Kafka's broker: the files that apache_kafka.lock lists, each checked by its SHA-256.

    apache_kafka.lock: SHA-256, size, path ─▶ Maven Central, or the mirror that PLANSTEP_MAVEN names
                                            ─▶ <Python's environment>/share/planstep/kafka-4.1.2/

The files lie beside the packages of the environment, so they go when it goes, and no root is needed. Each is whole
or absent: a fetch that was interrupted goes on with the files that are still missing.

The list is what Maven resolves for org.apache.kafka:kafka_2.13 with log4j-core and log4j-slf4j-impl 2.25.1.

Next: apache_kafka_server.py, which starts it.
"""

import hashlib
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from planstep.spark.java import NoJava, any_java

VERSION = "4.1.2"
NAME = f"Apache Kafka {VERSION}"
CENTRAL = "https://repo.maven.apache.org/maven2"
MIRROR = "PLANSTEP_MAVEN"
"""The environment variable with the address of another repository of the same layout."""
_LOCK = Path(__file__).with_name("apache_kafka.lock")
_PATIENCE_S = 60.0
"""Seconds without an answer after which a download fails."""


class Jar(NamedTuple):
    """A file of the broker; `path` is where Maven Central has it."""

    sha256: str
    size: int
    path: str

    @property
    def file(self) -> Path:
        """Returns where it lies on this machine."""
        return folder() / Path(self.path).name

    def is_there(self) -> bool:
        """Tells whether the file is there, by its size."""
        try:
            return self.file.stat().st_size == self.size
        except OSError:
            return False

    def is_whole(self) -> bool:
        """Tells whether the file is there and the listed one, by its SHA-256."""
        return self.is_there() and _digest(self.file) == self.sha256


def folder() -> Path:
    """Returns the folder of the broker's files, which may not exist yet."""
    return Path(sys.prefix) / "share" / "planstep" / f"kafka-{VERSION}"


@cache
def jars() -> tuple[Jar, ...]:
    """Returns the files of the broker, as listed."""
    rows = (line.split() for line in _LOCK.read_text().splitlines())
    return tuple(Jar(sha256, int(size), path) for sha256, size, path in rows)


def class_path() -> str:
    """Returns the broker's files as Java takes them. OSError for one that was damaged or changed."""
    if changed := [jar.file for jar in jars() if not jar.is_whole()]:
        raise OSError(f"{changed[0]} is not the listed file any more: make peers fetches it anew")
    return os.pathsep.join(os.fspath(jar.file) for jar in jars())


def unavailable() -> str:
    """Says what this machine lacks to run the broker and its client, and how to get it; "" if nothing."""
    if find_spec("confluent_kafka") is None:
        return 'its Python client is not installed: make peers, or pip install "planstep[kafka]"'
    if not all(jar.is_there() for jar in jars()):
        return "its broker is not here: make peers, or python -m planstep.bench.compare.peers"
    return _no_java()


@cache
def java() -> str:
    """Returns the program that runs the broker, which it looks up once. NoJava if there is none."""
    return os.fspath(any_java(NAME).path)


@cache
def _no_java() -> str:
    try:
        java()
    except NoJava as error:
        return str(error)
    return ""


def fetch(tell: Callable[[str], None]) -> None:
    """Fetches the files that are missing or damaged; `tell` gets a line for what it does.

    OSError if one cannot be had, or is not the listed one; those that came before stay.
    """
    missing = [jar for jar in jars() if not jar.is_whole()]
    if not missing:
        tell(f"{NAME}: all {len(jars())} files are in {folder()}")
        return
    folder().mkdir(parents=True, exist_ok=True)
    size = sum(jar.size for jar in missing)
    tell(f"{NAME}: {len(missing)} of {len(jars())} files, {size / 1e6:.1f} MB, into {folder()}")
    for jar in missing:
        _fetch_one(jar)


def _fetch_one(jar: Jar) -> None:
    source = f"{os.environ.get(MIRROR) or CENTRAL}/{jar.path}"
    partial = jar.file.with_name(f"{jar.file.name}.new")
    digest = hashlib.sha256()
    try:
        with partial.open("wb") as target:
            for data in _download(source):
                digest.update(data)
                target.write(data)
        if digest.hexdigest() != jar.sha256:
            raise OSError(f"{source} is not the listed file: its SHA-256 is {digest.hexdigest()}")
        partial.rename(jar.file)
    finally:
        partial.unlink(missing_ok=True)


def _download(source: str) -> Iterator[bytes]:
    try:
        with urllib.request.urlopen(source, timeout=_PATIENCE_S) as answer:
            while data := answer.read(1 << 16):
                yield data
    except (urllib.error.URLError, ValueError) as error:
        raise OSError(
            f"cannot fetch {source}: {error}; {MIRROR} may name another repository"
        ) from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
