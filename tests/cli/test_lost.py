"""Tests `planstep replicate lost`: what a folder of mode "async" has that was taken over."""

from pathlib import Path
from typing import Any

import pytest
from kit import until

import planstep
from planstep.errors import LogUnreachable
from planstep.runtime import replication
from planstep.shared.entry import BEGIN


@pytest.fixture
def aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that was set aside, whose owner was cut off with two transactions of its own."""
    really = replication.open_shared_log
    cut = [False]

    class Cut:
        def __init__(self, log: Any) -> None:
            self._log = log

        def append(self, entry: Any) -> bytes:
            if cut[0] and entry.owner.term == 1 and entry.kind != BEGIN:
                raise LogUnreachable("the line is cut")
            mark: bytes = self._log.append(entry)
            return mark

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, name)

    def opened(*args: Any) -> Any:
        log, root = really(*args)
        return Cut(log), root

    monkeypatch.setattr(replication, "open_shared_log", opened)
    url = (tmp_path / "log").as_uri()
    settings = planstep.Replicate(url, mode="async", max_lag=3_600, log_timeout=0.2)
    with planstep.open(tmp_path / "a", replicate=settings) as db:
        db.create_topic("c")
        db.create_table("t").put("k", 1)
        until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
        cut[0] = True
        with db.transaction() as tx:
            tx.put("t", "k", 2)
            tx.put("t", "l", 2)
        db.topic("c").write(b"1")
        with planstep.open(tmp_path / "b", replicate=url, takeover=True) as other:
            other.table("t").put("k", 3)
    cut[0] = False
    with planstep.open(tmp_path / "a", replicate=url, takeover=True) as db:
        assert dict(db.table("t").scan()) == {"k": 3}
    return tmp_path / "a.term-1"


def test_it_lists_transactions_and_what_they_changed(aside: Path, fields: Any, call: Any) -> None:
    found = fields("replicate", "lost", aside)
    assert (found["path"], found["term"], found["certain"]) == (str(aside), 1, True)
    assert (found["records"], found["rows"]) == ({"c": 1}, {"t": 2})
    first, second, closing = found["turns"]
    assert first["rows"] == {"t": 2} and first["records"] == {} and first["bytes"] > 100
    assert second["records"] == {"c": 1} and closing["transactions"] == []
    assert [turn["turn"] for turn in found["turns"]] == list(
        range(first["turn"], first["turn"] + 3)
    )
    (tx,) = first["transactions"]
    with planstep.open(aside, read_only=True) as db:
        assert db.outcome(tx).state == "committed"
    status, out, _ = call("replicate", "lost", aside)
    assert status == 0
    assert f"turn {first['turn']}: {tx}\n" in out
    assert "    c[0] @0 1 record" in out and " put\n" in out


def test_a_folder_that_was_not_set_aside_is_refused(aside: Path, refused: Any) -> None:
    assert "was not set aside" in refused("replicate", "lost", aside.with_name("b"))
    assert "is not a store" in refused("replicate", "lost", aside.with_name("nothing"))


def test_a_damaged_note_is_refused(aside: Path, call: Any) -> None:
    (aside / "lost.json").write_text("{}")
    status, _, err = call("replicate", "lost", aside)
    assert status == 1 and "lost.json is damaged" in err
