"""Tests a process that only writes, while others drop what it writes to, and create it again."""

from pathlib import Path

import pytest
from process_kit import Other

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
    except planstep.Aborted:
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
