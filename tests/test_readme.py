"""Runs the README's example twice, the second time on the first one's store."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_example_runs_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "README.md").read_text()
    match = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert match is not None
    code = compile(match.group(1), "README.md", "exec")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out == "3 resharded; {'ada': 2, 'bob': 1}\n"
    exec(code, {})
    assert capsys.readouterr().out == "3 resharded; {'ada': 4, 'bob': 2}\n"
