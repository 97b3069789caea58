"""Tests processes that use topics, tables and consumers while others drop these, and create them again."""

import signal
from pathlib import Path

import pytest
from process_kit import Other

import planstep

ROUNDS = 20
AGAIN = {
    "t": "db.drop_topic('t'); db.create_topic('t', partitions={})",
    "rows": "db.drop_table('rows'); db.create_table('rows', shards={})",
}
WRITE = {"t": "tx.write('t', b'x')", "rows": "tx.add('rows', 'n', 1)"}
WRITES = """
def writes(how):
    try:
        how()
        return "written"
    except planstep.Aborted as error:
        global why
        why = str(error)
        return "aborted"
def alone():
    with db.transaction() as tx: {write}
def submitted():
    tx = db.transaction()
    {write}
    tx.submit().result()
def repeated():
    db.run(lambda tx: {write})
"""


@pytest.mark.parametrize("how", ["alone", "submitted", "repeated"])
@pytest.mark.parametrize(
    ("mode", "name"),
    [("deterministic", "t"), ("deterministic", "rows"), ("kafka", "t"), ("pulsar", "t")],
)
def test_a_writer_knows_the_new_one_after_one_failure(
    tmp_path: Path, mode: str, name: str, how: str
) -> None:
    with Other(tmp_path / "s", mode=mode) as owner, Other(tmp_path / "s") as writer:
        owner.run("db.create_topic('t')")
        if mode == "deterministic":
            owner.run("db.create_table('rows')")
        writer.run(WRITES.format(write=WRITE[name]))
        assert writer(f"writes({how})") == "written"
        for n in range(ROUNDS):
            owner.run(AGAIN[name].format(n % 3 + 1))
            said = [writer(f"writes({how})"), writer(f"writes({how})")]
            assert said[1] == "written", said
        counted = {"t": "len(db.topic('t').read().values)", "rows": "db.table('rows').get('n')"}
        assert owner(counted[name]) == said.count("written")


@pytest.mark.parametrize("again", [False, True], ids=["gone", "again"])
@pytest.mark.parametrize("mode", ["kafka", "pulsar"])
def test_the_next_owner_does_not_take_a_dropped_topic_for_a_malformed_frame(
    tmp_path: Path, mode: str, again: bool
) -> None:
    """The client had its partitions from the owner before, and asks for them once more."""
    with Other(tmp_path / "s", mode=mode) as owner, Other(tmp_path / "s") as writer:
        owner.run("db.create_topic('t'); db.create_topic('u')")
        writer.run(WRITES.format(write=WRITE["t"]))
        assert writer("writes(alone)") == "written"
        owner.run("db.drop_topic('t')" + again * "; db.create_topic('t')")
        with Other(tmp_path / "s") as following:
            writer.signal(signal.SIGSTOP)  # so that the other one owns the store
            owner.kill()
            following.run("db.create_topic('v')")
            writer.signal(signal.SIGCONT)
            assert writer("writes(alone)") == "aborted"
            why = {
                "kafka": "the topic was dropped",
                "pulsar": "topic 't', partition 0 was not registered: Topic",
            }
            assert why[mode] in writer("why")
            if again:
                assert [writer("writes(alone)") for _ in range(20)] == ["written"] * 20
            else:
                with pytest.raises(planstep.UnknownName):
                    writer("writes(alone)")
            writer.run("for _ in range(20): db.topic('u').write(b'x')")
            assert following("len(db.topic('u').read().values)") == 20


CONSUMERS = """
def come_and_go(first):
    said = set()
    for n in range(first, first + 200):
        try:
            if n % 2: db.topic("t").create_consumer("c", kind="individual", exist_ok=True)
            else: db.topic("t").drop_consumer("c")
        except planstep.PlanstepError as error:
            said.add((type(error).__name__, str(error)))
    return said
"""


@pytest.mark.parametrize("mode", ["deterministic", "pulsar"])
def test_a_consumer_that_two_processes_create_and_drop(tmp_path: Path, mode: str) -> None:
    with (
        Other(tmp_path / "s", mode=mode) as owner,
        Other(tmp_path / "s") as one,
        Other(tmp_path / "s") as two,
    ):
        owner.run("db.create_topic('t', partitions=3)")
        for process in (one, two):
            process.run(CONSUMERS)
        answers = [
            process.begin(f"come_and_go({first})") for first, process in enumerate((one, two))
        ]
        said = {error for answer in answers for error in answer()}
        assert said <= {("UnknownName", "no consumer 'c'; db.create_consumer makes one")}


TOPICS = """
def come_and_go(first):
    said = set()
    for n in range(first, first + 200):
        try:
            if n % 2: db.create_topic("t", exist_ok=True)
            else: db.drop_topic("t", missing_ok=True)
        except planstep.PlanstepError as error:
            said.add((type(error).__name__, str(error)))
    return said
"""


@pytest.mark.parametrize("mode", ["deterministic", "kafka"])
def test_a_topic_that_two_processes_create_and_drop(tmp_path: Path, mode: str) -> None:
    """One that is dropped by the time that `create_topic` looks at it is unknown: all else is accepted."""
    with Other(tmp_path / "s", mode=mode) as one, Other(tmp_path / "s") as two:
        for process in (one, two):
            process.run(TOPICS)
        answers = [process.begin(f"come_and_go({n})") for n, process in enumerate((one, two))]
        said = {error for answer in answers for error in answer()}
        assert said <= {("UnknownName", "no topic 't'; db.create_topic makes one")}
