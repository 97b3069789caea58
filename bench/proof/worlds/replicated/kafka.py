"""Runs one seed of a world of machines that share a log in mode "kafka", and judges it.

    seed ─▶ swarm.py, ../kafka/swarm.py ─▶ SharedKafkaWorld, groups and producers ─▶ healed ─▶ all ends ─▶ Played
                 └ history.py: J1, J3 on the way               the mode's anomalies, J2, J3, J8 ┘

Next: ../../rows/shared.py.
"""

import shutil
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import mkdtemp

from .....shared.settings import Replicate
from ...simulator.client_world import NONE
from ...simulator.kafka_world import QUICK
from ...simulator.shared_kafka import SharedKafkaWorld
from ..kafka import seed as kafka_seed
from ..kafka.swarm import draw_settings as draw_kafka
from ..kafka.workload import Workload
from ..result import Played
from .history import History
from .seed import fresh, until_up
from .swarm import draw_settings


def play_kafka(seed: int, folder: Path, transactions: int = 60) -> Played:
    """Runs a seed in a folder of its own; the same seed and arguments give the same Played."""
    settings = draw_settings(seed, transactions)
    kafka = replace(draw_kafka(seed), version=2, late="", expires=False, hosts=1, tiny=False)
    kafka = replace(kafka, switches=False)
    home = Path(mkdtemp(dir=folder))
    world = SharedKafkaWorld(
        seed,
        home,
        settings.machines,
        Replicate("file:///bucket", log_timeout=settings.timeout_s, keep=settings.keep),
        separate=kafka.separate,
        settings=replace(QUICK, protocol_version=2, log_batching=kafka.log_batching),
        inputs_max=kafka.inputs_max,
    )
    world.rare = settings.rare
    history = History(world.bucket)
    violations: list[str] = []
    try:
        with world.real_calls():
            world.act(None)
            world.open(world.machines[0], takeover=False)
            until_up(world)
            world.act(world.leading)
            work = Workload(world, kafka)
            faults = replace(kafka.faults, fail=0.0, pause=0.0, full=0.0, jump=0.0, stop=0.0)
            world.strike(faults if settings.faults else NONE, settings.ways, settings.fates)
            work.begin()
            work.finish(transactions)
            violations += kafka_seed.judge(work, kafka, Counter())
            violations += history.folder(world.stores[0], "the last owner's folder")
            world.act(None)
            violations += fresh(world, history)
    except Exception as error:
        violations.append(f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(home)
    history.count(world.reached)
    return Played(
        seed,
        "kafka",
        {**settings.describe(), **asdict(kafka)},
        history.wrong + violations,
        world.events,
        +world.faulted,
        +world.reached,
        world.digest(),
        world.latest() if violations or history.wrong else [],
    )
