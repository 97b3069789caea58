"""Tests that mypy --strict and pyright accept user_code.py, and find exactly the mistakes in wrong_code.py.

Both checkers run from their packages, without a network: pyright's package has its program, and the extra
`nodejs` the runtime for it.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
UNTYPED = {"tasks.py"}  # Celery's decorators have no types
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
RIGHT = [HERE / "user_code.py", *(path for path in EXAMPLES if path.name not in UNTYPED)]
WRONG = HERE / "wrong_code.py"
MARKED = {n for n, line in enumerate(WRONG.read_text().splitlines(), 1) if line.endswith("# wrong")}


def mypy(*files: Path) -> set[tuple[str, int, str]]:
    """Returns (file, line, message) of each error."""
    pytest.importorskip("mypy")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        str(ROOT / "pyproject.toml"),
    ]
    ran = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    errors = re.findall(r"^(.*?):(\d+): error: (.*)$", ran.stdout, re.MULTILINE)
    return {(Path(file).name, int(line), text) for file, line, text in errors}


def pyright(*files: Path) -> set[tuple[str, int, str]]:
    pytest.importorskip("pyright")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    quiet = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    ran = subprocess.run(
        [*command, *map(str, files)], capture_output=True, text=True, cwd=HERE, env=quiet
    )
    try:
        report = json.loads(ran.stdout)
    except ValueError:
        pytest.skip(f"pyright does not run here: {(ran.stderr or ran.stdout)[-300:]}")
    assert report["summary"]["filesAnalyzed"] == len(files)
    return {
        (Path(d["file"]).name, d["range"]["start"]["line"] + 1, d["message"])
        for d in report["generalDiagnostics"]
        if d["severity"] == "error"
    }


@pytest.mark.parametrize("check", [mypy, pyright])
def test_what_users_write(check: Callable[..., set[tuple[str, int, str]]]) -> None:
    errors = check(*RIGHT, WRONG)
    assert not [error for error in errors if error[0] != WRONG.name]
    assert {line for file, line, _ in errors if file == WRONG.name} == MARKED
