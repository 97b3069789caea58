"""Tests `planstep check-log`: its verdicts, exit codes and output."""

import signal
from pathlib import Path
from typing import Any

import pytest
from kit import PLANSTEP, Child, until

from planstep.cli import shared_logs
from planstep.shared import check_log as module
from planstep.shared.check_log import Report

PASSED = Report("passed", "9 slots have one winner each", 9, 0, 2, 1.5, 7.0, None)


def test_a_folder_passes(tmp_path: Path, fields: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SLOTS_MIN", 1)  # on a busy machine too
    url = (tmp_path / "shop").as_uri()
    report = fields("check-log", url, "--seconds", 2)
    assert report["verdict"] == "passed", report
    assert (report["url"], report["seconds"], report["contenders"]) == (url, 2, 5)
    assert report["slots"] >= 1 and report["left"] is None
    assert "lost" in report["not_checked"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verdict", ["passed", "refused", "undecided"])
def test_the_exit_code_is_the_verdict(
    verdict: str, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = PASSED._replace(verdict=verdict, left="s3://b/shop/check-1")
    monkeypatch.setattr(shared_logs, "check_log", lambda url, seconds, tell: report)
    status, out, err = call("check-log", "s3://b/shop")
    assert status == (verdict != "passed")
    assert out.splitlines()[:2] == [
        f"{verdict}: 9 slots have one winner each",
        "an append took 1.5 ms (p50), 7.0 ms (p99)",
    ]
    assert "not checked: answers that get lost" in out
    assert err == "s3://b/shop/check-1 could not be removed: remove it\n"


def test_a_url_that_is_none_is_one_line(refused: Any) -> None:
    assert "file:///disk/shop" in refused("check-log", "/disk/shop")


def test_ctrl_c_removes_what_was_made(tmp_path: Path) -> None:
    url = (tmp_path / "shop").as_uri()
    with Child(PLANSTEP, "check-log", url, "--seconds", "60") as racing:
        until(lambda: list(tmp_path.glob("shop-check-*/log/" + "9".zfill(20))))
        racing.process.send_signal(signal.SIGINT)
        racing.process.wait(60)
        assert racing.process.returncode == 130
    assert list(tmp_path.iterdir()) == []
