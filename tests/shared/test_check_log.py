"""Tests `check_log`: it passes servers that keep to the rules, and refuses each that breaks one of them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from s3_kit import new_bucket
from shared_kit import ROOT, InFolder, filled, read_all

from planstep.bench.proof.s3_servers import request
from planstep.bench.proof.s3_wire import Wire
from planstep.errors import IoError, NotSupported, PlanstepError
from planstep.shared import check_log as module
from planstep.shared.check_log import Report, check_log
from planstep.shared.registry import open_shared_log

SLOT = "/log/"


@pytest.fixture
def url(wire: Wire, server: str) -> str:
    return f"s3://{new_bucket(server)}/shop"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets few slots suffice: a busy machine may be slow."""
    monkeypatch.setattr(module, "_SLOTS_MIN", 1)


def run(url: str, seconds: float = 1.0, timeout: float = 30.0) -> Report:
    phases: dict[str, int | None] = {}
    report = check_log(
        url, seconds, lambda phase, done, total: phases.update({phase: total}), timeout
    )
    assert report.left is None
    if report.verdict == "passed":
        assert phases == {"racing": int(seconds), "reading again": None}
    return report


def names_in(url: str, server: str) -> bytes:
    return request("GET", f"{server}/{url.split('/')[2]}?list-type=2")


@pytest.mark.usefixtures("few")
def test_a_server_that_keeps_to_the_rules_passes(url: str, server: str) -> None:
    report = run(url, 3)
    assert report.verdict == "passed", report
    assert report.slots >= 1 and report.lists >= 1
    assert report.append_ms_p50 is not None and report.append_ms_p99 is not None
    assert 0 < report.append_ms_p50 <= report.append_ms_p99
    assert b"<Key>" not in names_in(url, server)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("there", [True, False])
def test_a_folder_passes_and_is_left_as_it_was(tmp_path: Path, there: bool) -> None:
    folder = InFolder(tmp_path / "shop")
    entries = filled(folder, 3)
    url = folder.path.as_uri() if there else (tmp_path / "none").as_uri()
    before = sorted(tmp_path.rglob("*"))
    report = run(url)
    assert report.verdict == "passed", report
    assert sorted(tmp_path.rglob("*")) == before
    assert read_all(folder.open()) == entries
    folder.close()


@pytest.mark.usefixtures("few")
def test_a_prefix_that_has_a_log_passes_and_keeps_it(url: str, server: str) -> None:
    log, _ = open_shared_log(url, ROOT)
    log.close()
    before = names_in(url, server).count(b"<Key>")
    report = run(url, 3)
    assert report.verdict == "passed", report
    assert names_in(url, server).count(b"<Key>") == before == 1


def test_too_few_slots_decide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SLOTS_MIN", 1_000_000)
    report = run((tmp_path / "shop").as_uri())
    assert report.verdict == "undecided"
    assert "slots were decided: give it more time" in report.reason


# wrong servers ---------------------------------------------------------------------------------


def refused(url: str, server: str) -> str:
    report = run(url, 60)
    assert report.verdict == "refused", report
    assert b"<Key>" not in names_in(url, server)
    return report.reason


def test_a_server_that_ignores_the_condition_is_refused(wire: Wire, url: str, server: str) -> None:
    wire.faults = lambda method, path: "plain"
    assert "overwrites what may be created only once" in refused(url, server)


def test_a_server_that_lets_two_win_is_refused(wire: Wire, url: str, server: str) -> None:
    wire.faults = lambda method, path: "plain" if SLOT in path else ""
    assert "of 5 processes won slot 1" in refused(url, server)


def every(number: int, kind: str, wanted: Callable[[str, str], bool]) -> Callable[[str, str], str]:
    """Gives a fault to each so many-th of the wanted requests."""
    count = 0

    def fault(method: str, path: str) -> str:
        nonlocal count
        count += wanted(method, path)
        return kind if wanted(method, path) and count % number == 0 else ""

    return fault


def test_a_server_whose_reads_are_late_is_refused(wire: Wire, url: str, server: str) -> None:
    wire.faults = every(7, "404 NoSuchKey", lambda method, path: method == "GET" and SLOT in path)
    reason = refused(url, server)
    assert "does not show" in reason or "is missing" in reason


def test_a_server_whose_lists_are_late_is_refused(wire: Wire, url: str, server: str) -> None:
    wire.faults = every(1, "200 Empty", lambda method, path: "list-type" in path and "log" in path)
    assert "a list behind the append of slot 1 does not have it" in refused(url, server)


def test_a_server_that_loses_what_it_took_is_refused(wire: Wire, url: str, server: str) -> None:
    wire.faults = every(3, "200", lambda method, path: method == "PUT" and SLOT in path)
    refused(url, server)


def test_a_server_that_falls_silent_decides_nothing(wire: Wire, url: str) -> None:
    wire.faults = every(1, "503", lambda method, path: SLOT in path and method != "DELETE")
    report = run(url, timeout=0.2)
    assert report.verdict == "undecided"
    assert "was not reached" in report.reason and "503" in report.reason


# what is no verdict ----------------------------------------------------------------------------


def test_a_server_that_refuses_us_is_an_error(wire: Wire, url: str) -> None:
    wire.faults = lambda method, path: "403 AccessDenied"
    with pytest.raises(IoError, match="allow Get, Put, List and Delete"):
        run(url)


def test_a_bucket_without_a_prefix_will_do(url: str, server: str) -> None:
    assert run(url.removesuffix("/shop")).slots >= 1
    assert b"<Key>" not in names_in(url, server)


@pytest.mark.parametrize("url", ["ftp://machine/shop", "s3://key:a-secret@bucket/shop", "shop"])
def test_a_url_that_names_no_log_is_an_error(url: str) -> None:
    with pytest.raises((NotSupported, ValueError)) as error:
        check_log(url, 1, lambda phase, done, total: None)
    assert "a-secret" not in str(error.value)


def test_a_contender_that_dies_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "executable", shutil.which("false"))
    with pytest.raises(PlanstepError, match="a contender ended with status"):
        check_log((tmp_path / "shop").as_uri(), 1, lambda phase, done, total: None)
    assert list(tmp_path.iterdir()) == []
