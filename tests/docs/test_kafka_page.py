"""Tests that the page about the Kafka-style mode names all settings with their defaults, and errors by Kafka's
codes."""

import re
from dataclasses import fields
from pathlib import Path

from planstep import KafkaSettings
from planstep.proto.kafka.settings import ERRORS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kafka.md").read_text()


def test_every_setting_is_there_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\w.]+) \| ", PAGE, re.MULTILINE)
    settings = {field.name: str(field.default) for field in fields(KafkaSettings)}
    assert {name: value for name, value in rows if name.islower()} == settings


def test_errors_have_kafkas_codes() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| (\d+) \| ", PAGE, re.MULTILINE)
    assert len(rows) > 10
    for name, code in rows:
        assert ERRORS[name].code == int(code), name


def test_every_golden_of_modes_has_its_line() -> None:
    rows = re.findall(r"\| `([a-z_]+)` \|$", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(folder.name for folder in (ROOT / "tests/golden/modes").iterdir())
