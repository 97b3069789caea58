"""Row `spark`: the model task as a Spark job, in each mode, while its processes are killed at named phases.

    driver.py, in a session of its own ─▶ reads events ─▶ by user + totals ─▶ done? no: started again
         killed: a task · the process that commits · the driver · its Java · all of them
    then: each event once, in order, under its user · totals are the counts · nothing staged is left

The events carry their file and ordinal; reshard/verify.py reads the input again and looks for each. The plan
follows from the seed, the moment at which a random kill hits does not.

Left out: a loss of power (row powerloss; staged files are never read after one), and a cluster of several machines.
`local-cluster` starts executors of its own on this one, and is one lane of the whole row.

Next: ../spark/kills.py, ../spark/driver.py.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ....api import open_engine
from ....api.open_engine import Mode
from ....reshard import job as threads
from ....reshard.events import Source, generated
from ....reshard.verify import verify
from ....store.verify import verify as verify_store
from ..parallel import gather
from ..spark.kills import DRIVER, JAVA, NO_FENCE, VARIABLE, Kill, claim, planned, strike
from .registry import RowOptions, RowResult

KILLS = 54
_MODES: tuple[Mode, ...] = ("deterministic", "kafka", "pulsar")
_RANDOM = "random"
_PLANS = {
    "batch": (
        ("task begins", "self"),
        ("in the transaction", "driver"),
        ("task staged", "self"),
        ("committed", "driver"),
        ("opened", "all"),
        (_RANDOM, "java"),
    ),
    "stream": (
        ("task staging", "self"),
        ("committed", "all"),
        ("in the transaction", "driver"),
        ("task begins", "self"),
        ("before opening", "java"),
        (_RANDOM, "driver"),
    ),
    "sink": (
        ("before opening", "self"),
        ("in the transaction", "self"),
        ("committed", "self"),
        ("opened", "self"),
        ("finished", "self"),
        ("task staged", "self"),
        ("committed", "all"),
    ),
}
_PARTITIONS, _SIZE = 2, 40
_LIFE_SECONDS, _RANDOM_SECONDS, _LOOK_SECONDS = 900, 6.0, 0.05


class Lane(NamedTuple):
    """A store, its job, and the kills to come, as (phase, target). `events`: 0 for as many as it needs."""

    folder: Path
    mode: Mode
    job: str
    seed: int
    kills: tuple[tuple[str, str], ...]
    master: str = "local[2,4]"
    no_fence: bool = False
    events: int = 0

    def __str__(self) -> str:
        return f"{self.mode}, {self.job}, {self.master}"


def run(options: RowOptions) -> RowResult:
    if find_spec("pyspark") is None:
        return RowResult(skipped="PySpark is not installed")
    lanes = _lanes(options)
    result = gather(options, kill_again, lanes)
    wanted = sum(len(lane.kills) for lane in lanes)
    result.reaches([("kills", result.runs, wanted if options.quick else max(wanted, KILLS))])
    return result


def control(options: RowOptions) -> RowResult:
    """Plants commits without a fence: a batch that Spark repeats is written twice."""
    if find_spec("pyspark") is None:
        return RowResult(skipped="PySpark is not installed")
    kills = (("committed", "self"), ("finished", "self"))
    lane = Lane(options.folder / "no-fence", "kafka", "sink", options.seed, kills, no_fence=True)
    return kill_again(lane).planted("duplicated")


def _lanes(options: RowOptions) -> list[Lane]:
    lanes = [
        Lane(
            options.folder / f"spark-{mode}-{job}",
            mode,
            job,
            options.seed,
            tuple(random.Random(f"{options.seed}/{mode}").sample(kills, len(kills))),
        )
        for job, kills in _PLANS.items()
        for mode in _MODES
    ]
    if options.quick:
        transaction, sink = lanes[3], lanes[-1]
        return [
            transaction._replace(kills=(("in the transaction", "driver"),)),
            sink._replace(kills=sink.kills[:3]),
        ]
    cluster = lanes[4]._replace(
        folder=options.folder / "spark-cluster", master="local-cluster[2,1,1024]"
    )
    return [*lanes, cluster._replace(kills=(("task staged", "self"), ("committed", "driver")))]


def kill_again(lane: Lane) -> RowResult:
    """Runs a lane's job to its end, and judges what it has made."""
    result = RowResult()
    store, source = load(lane)
    draw = random.Random(lane.seed)
    for number, (phase, target) in enumerate(lane.kills):
        nth = draw.randint(1, 2) if phase.startswith("task") else 1
        Kill(number, phase, target, nth).save(_kills(lane))
    lives = _Lives(lane, store)
    lives.run()
    left = planned(_kills(lane))
    result.runs = len(lane.kills) if left is None else left.number
    result.faults = Counter(
        f"{target} killed: {phase}" for phase, target in lane.kills[: result.runs]
    )
    result.faults["driver started again"] = lives.number - 1
    result.violations += [f"{lane}: {text}" for text in lives.wrong]
    result.must(left is None or bool(lives.wrong), f"{lane}: {left} never came")
    result.events = _judge(lane, store, source, result)
    return result


def _kills(lane: Lane) -> Path:
    return lane.folder / "kills"


def load(lane: Lane) -> tuple[Path, Source]:
    """Makes a store with events for a batch more than there are kills: each kill needs one batch at most."""
    _kills(lane).mkdir(parents=True)
    source = generated(lane.events or _SIZE * (len(lane.kills) + 1), lane.seed)
    store = lane.folder / "shop.planstep"
    with open_engine.open(store, mode=lane.mode, hosts=2) as db:
        for name in (threads.EVENTS, threads.BY_USER):
            db.create_topic(name, partitions=_PARTITIONS)
        db.create_topic(threads.REJECTED)
        if db.context.runtime.hooks.has_tables:
            db.create_table(threads.TOTALS)
        else:
            db.create_topic(threads.TOTALS, partitions=_PARTITIONS, format="msgpack")
        for chunk in source.chunks(source.files[0], 0, 1000):
            headers = threads.headers_of(0, chunk.ordinals)
            with db.transaction() as tx:
                tx.write_batch(threads.EVENTS, chunk.values, keys=chunk.writers, headers=headers)
    return store, source


class _Lives:
    """The lives of a lane's driver. `wrong`: what is wrong with them."""

    def __init__(self, lane: Lane, store: Path) -> None:
        self._lane, self._store = lane, store
        self._random = random.Random(lane.seed)
        self.number = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        for _ in range(2 * len(self._lane.kills) + 2):
            ended = self._live()
            if ended in (None, 0):
                return
        self.wrong.append(f"the driver ended {self.number} times, and was never done")

    def _live(self) -> int | None:
        """Starts the driver; returns its exit code, None if it hangs."""
        folder, kills = self._lane.folder, _kills(self._lane)
        before = planned(kills)
        self.number += 1
        for name in (DRIVER, JAVA):
            Path(kills, name).unlink(missing_ok=True)
        if self._lane.no_fence:
            Path(kills, NO_FENCE).touch()
        spark = folder / f"spark-{self.number}"
        plan, log = spark / "plan.json", folder / f"life-{self.number}.txt"
        (spark / "sources").mkdir(parents=True)
        line = "from planstep.bench.proof.spark.points import DefaultSource as DefaultSource\n"
        Path(spark, "sources", "pyspark_planstep.py").write_text(line)
        job = {"store": os.fspath(self._store), "job": self._lane.job, "size": _SIZE}
        plan.write_text(
            json.dumps({**job, "folder": os.fspath(spark), "master": self._lane.master})
        )
        with log.open("wb") as out:
            driver = subprocess.Popen(
                [sys.executable, "-m", "planstep.bench.proof.spark.driver", os.fspath(plan)],
                env=self._environment(spark),
                cwd=spark,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            code = self._wait(driver)
            if code is None:
                self.wrong.append(f"life {self.number} hangs: {_tail(log)}")
            elif code > 0 and "java" not in self._targets(before):
                self.wrong.append(f"life {self.number} ended with {code}: {_tail(log)}")
            return code
        finally:
            self._end(driver)

    def _environment(self, spark: Path) -> dict[str, str]:
        paths = [os.fspath(spark / "sources"), *filter(None, sys.path)]
        return {
            **os.environ,
            VARIABLE: os.fspath(_kills(self._lane)),
            "PYTHONPATH": os.pathsep.join(paths),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": _home(spark),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def _wait(self, driver: "subprocess.Popen[bytes]") -> int | None:
        """Waits for the driver's end, and strikes at random meanwhile where that is planned."""
        kills, deadline = _kills(self._lane), time.monotonic() + _LIFE_SECONDS
        while time.monotonic() < deadline:
            with suppress(subprocess.TimeoutExpired):
                return driver.wait(_LOOK_SECONDS)
            kill = planned(kills)
            if kill is not None and kill.phase == _RANDOM and Path(kills, DRIVER).exists():
                time.sleep(self._random.uniform(0, _RANDOM_SECONDS))
                if driver.poll() is None and claim(kills, kill):
                    strike(kills, kill.target, driver.pid)
        return None

    def _targets(self, first: Kill | None) -> list[str]:
        """Returns what was killed since this kill was the next one: without its Java the driver fails."""
        left = planned(_kills(self._lane))
        end = len(self._lane.kills) if left is None else left.number
        return [target for _, target in self._lane.kills[first.number if first else end : end]]

    def _end(self, driver: "subprocess.Popen[bytes]") -> None:
        """Waits for the end of the driver's Java, which it follows; then ends what is left of this life."""
        java = Path(_kills(self._lane), JAVA)
        deadline = time.monotonic() + 30
        while java.exists() and _is_running(int(java.read_text())) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def _home(spark: Path) -> str:
    """Makes a folder of links to Spark's files: `local-cluster` starts there, and its executors write there."""
    import pyspark

    home = spark / "home"
    home.mkdir()
    for file in Path(pyspark.__file__).parent.iterdir():
        if file.name != "work":
            (home / file.name).symlink_to(file)
    return os.fspath(home)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-600:]


def _judge(lane: Lane, store: Path, source: Source, result: RowResult) -> int:
    """Judges the store by what it has; returns the number of records by user."""
    settle(store)
    verdict: dict[str, Any] = verify(os.fspath(store), source)
    flaws = {name: n for name, n in verdict.items() if n and name in _FLAWS}
    result.must(bool(verdict["ok"]), f"{lane}: {flaws or verdict}")
    left = sorted(os.listdir(store / "spark")) if (store / "spark").exists() else []
    result.must(not left, f"{lane}: {left} are left of what tasks staged")
    for host in sorted(store.glob("host-*")):
        problems = [str(problem) for problem in verify_store(host)]
        result.must(not problems, f"{lane}, {host.name}: {problems[:3]}")
    return int(verdict["records"])


_FLAWS = ("missing", "duplicated", "out_of_order", "misplaced", "foreign", "table_mismatches")


def settle(store: Path) -> None:
    """Waits until what is committed is shown: its markers may follow the answer."""
    with open_engine.open(store) as db:
        for info in db.context.runtime.names.topics.values():
            for tablet in info.partitions:
                db.context.runtime.hooks.wait_stable(tablet)
