"""Tests opening a path that this process has open already: settings must agree, or an error names the one that
differs."""

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import planstep

SETTINGS: dict[str, tuple[Any, Any]] = {
    # the engine's value           a value that it refuses
    "mode": ("kafka", "deterministic"),
    "hosts": (1, 2),
    "read_only": (False, True),
    "durability": ("os", "full"),
    "placement": ("separate", "shared"),
    "trace": ("messages", "summary"),
    "rtt": (0.001, 0.0),
    "protocol_version": (2, 1),
    "snapshot_seconds": (30.0, 60.0),
    "snapshot_bytes": (1 << 20, 64 << 20),
    "group_commit": (True, False),
    "kafka": (planstep.KafkaSettings(linger_ms=7, protocol_version=2), planstep.KafkaSettings()),
    "pulsar": (planstep.PulsarSettings(coordinators=3), planstep.PulsarSettings()),
}
OF_A_MODE = {"protocol_version": "kafka", "kafka": "kafka", "pulsar": "pulsar"}
OF_THE_CALL = ("path", "create", "wait", "switch_interval", "takeover", "share", "attach", "gc")
"""Parameters of the opening call, which are no settings of an engine."""
OF_A_LOG = ("replicate", "follow")
"""Settings that need a shared log: shared/test_replicated_opening.py, shared/test_followers.py."""


def fitting(setting: str) -> dict[str, Any]:
    """Returns settings, each with the engine's value, that go with `setting`: those of its mode, and of all."""
    mode = OF_A_MODE.get(setting, "kafka")
    here = {name: here for name, (here, _) in SETTINGS.items() if OF_A_MODE.get(name, mode) == mode}
    return {**here, "mode": mode}


def open_with(function: str, path: Path | str, **settings: Any) -> planstep.Engine:
    if function == "open":
        return planstep.open(path, **settings)

    async def opened_async() -> planstep.Engine:
        return (await planstep.open_async(path, **settings)).sync

    return asyncio.run(opened_async())


def test_the_table_has_every_parameter() -> None:
    for function in (planstep.open, planstep.open_async):
        assert {*inspect.signature(function).parameters} == {*SETTINGS, *OF_A_LOG, *OF_THE_CALL}
        for name in (*SETTINGS, *OF_A_LOG):
            assert inspect.signature(function).parameters[name].default is None


@pytest.mark.parametrize("function", ["open", "open_async"])
@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_asked_for_and_not_there_is_an_error(
    tmp_path: Path, name: str, function: str
) -> None:
    here, other = SETTINGS[name]
    all_here = fitting(name)
    with planstep.open(tmp_path / "s", **all_here) as db:
        with pytest.raises(planstep.WrongMode, match=f"already with {name}[=.]") as caught:
            open_with(function, tmp_path / "s", **{name: other})
        error = caught.value
        assert (error.setting, error.stored, error.asked) == (name, here, other)
        for fits in ({name: here}, {name: None}, {}, {**all_here, "create": False, "wait": 1}):
            again = open_with(function, tmp_path / "s", **fits)
            assert again is db
            again.close()
        db.create_topic("t")


@pytest.mark.parametrize("name", SETTINGS)
def test_a_default_is_a_setting_like_others_once_asked_for(tmp_path: Path, name: str) -> None:
    """An engine opened without a setting has the default; a later open without it accepts any value."""
    here, other = SETTINGS[name]
    if here in (1, False):
        here, other = other, here
    mode: Any = OF_A_MODE.get(name)
    with planstep.open(tmp_path / "s", mode=mode), pytest.raises(planstep.WrongMode) as caught:
        planstep.open(tmp_path / "s", **{name: here})
    assert (caught.value.setting, caught.value.stored) == (name, other)


@pytest.mark.parametrize("function", ["open", "open_async"])
@pytest.mark.parametrize("setting", OF_A_MODE)
def test_settings_of_another_mode_are_refused(tmp_path: Path, setting: str, function: str) -> None:
    """Refused for a new store, an existing one, an open one, and in memory; nothing is created."""
    mode = OF_A_MODE[setting]
    for number, value in enumerate(SETTINGS[setting]):
        path = tmp_path / f"{number}"
        own = {setting: value}
        refused = pytest.raises(planstep.WrongMode, match=f"{setting}= is .* mode '{mode}'")
        for settings in (own, {"mode": "deterministic", **own}):
            with refused as caught:
                open_with(function, path, **settings)
            with refused:
                open_with(function, ":memory:", **settings)
        error = caught.value
        assert (error.setting, error.stored, error.asked) == ("mode", "deterministic", mode)
        assert not path.exists()
        planstep.open(path).close()
        for read_only in (False, True):
            with refused:
                open_with(function, path, read_only=read_only, **own)
        with planstep.open(path, **{setting: None}), refused:
            open_with(function, path, **own)


def test_who_does_not_ask_gets_the_engine_that_only_looks(tmp_path: Path) -> None:
    planstep.open(tmp_path / "s").close()
    with planstep.open(tmp_path / "s", read_only=True) as db:
        with planstep.open(tmp_path / "s") as same, pytest.raises(planstep.NotSupported):
            assert same is db
            same.create_topic("t")
        with pytest.raises(planstep.WrongMode, match="read_only=True, not False"):
            planstep.open(tmp_path / "s", read_only=False)


def test_the_interpreter_switches_as_often_as_the_last_one_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch interval belongs to the process, so openings cannot disagree: it is only lowered."""
    intervals: list[float] = []
    monkeypatch.setattr("sys.getswitchinterval", lambda: intervals[-1] if intervals else 0.005)
    monkeypatch.setattr("sys.setswitchinterval", intervals.append)
    with planstep.open(tmp_path / "s", switch_interval=None):
        assert intervals == []
        for seconds in (0.001, 0.0002, 0.003):
            planstep.open(tmp_path / "s", switch_interval=seconds).close()
        assert intervals == [0.001, 0.0002]


def test_an_engine_that_stopped_is_not_handed_out_again(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("t")
        (tmp_path / "s" / "host-0" / "lock").unlink()
        with pytest.raises(planstep.StoreClosed):
            db.topic("t").write(b"x")
        with pytest.raises(planstep.StoreInUse, match=r"has stopped .*: close it, then open again"):
            planstep.open(tmp_path / "s")
    with planstep.open(tmp_path / "s") as db:
        db.topic("t").write(b"x")


def test_the_new_name_of_a_store_that_this_process_has_open(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s"):
        (tmp_path / "s").rename(tmp_path / "moved")
        with pytest.raises(
            planstep.StoreInUse, match="in this very process, perhaps under another path"
        ):
            planstep.open(tmp_path / "moved")
