"""Tests that the wheel holds every package and works outside the repository, and that importing it is light."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, cwd: Path) -> str:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PLANSTEP_STORE")}
    ended = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_wheel_works_outside_the_repository(tmp_path: Path) -> None:
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".venv", ".git", "build", "*.egg-info", ".*_cache", "tests")
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-build-isolation", "--no-deps", "--quiet"]
    run(*pip, "wheel", *options, "--wheel-dir", tmp_path, source, cwd=tmp_path)
    (wheel,) = tmp_path.glob("planstep-*.whl")
    home = tmp_path / "home"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    run(*pip, "--python", python, "install", "--no-deps", "--quiet", wheel, cwd=tmp_path)
    # Everything else comes from the environment of the tests: nothing is downloaded.
    site = next((home / "lib").glob("python3*/site-packages"))
    (site / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    out = run(python, "-c", "import planstep; print(planstep.__file__)", cwd=tmp_path)
    assert out.startswith(str(home.resolve())) or out.startswith(str(home))
    out = run(home / "bin" / "planstep", "reshard", "--generate", "2k", "--json", cwd=tmp_path)
    assert '"verified": true' in out
    out = run(python, "-m", "planstep.bench.notebooks", "lab", cwd=tmp_path)
    assert "lab/01_first_transaction.ipynb" in out.splitlines()
    unpack = "from planstep.bench.notebooks.sample import unpack, Path; print(unpack(Path('lab')))"
    assert "lab/sample" in run(python, "-c", unpack, cwd=tmp_path)
    words = "--workload reshard --systems deterministic --placement shared --durability full --rate 0.2 "
    words += "--duration 0.5 --partitions 2 --repeat 1 --no-find-rate --json --out results"
    out = run(home / "bin" / "planstep", "compare", *words.split(), cwd=tmp_path)
    spark = json.loads(out)["spark"]
    assert spark["ran"] and spark["agrees_with_python"], spark
    assert {check["name"]: check["rows"] for check in spark["checks"]}["stores: as traced"] > 0
    out = run(home / "bin" / "planstep", "check", "format", "--json", cwd=tmp_path)
    assert json.loads(out)["rows"][0]["violations"] == 0
    out = run(home / "bin" / "planstep", "check", "sim", "--runs", "3", "--json", cwd=tmp_path)
    assert json.loads(out)["rows"][0]["runs"] == 3
    page = (tmp_path / "results" / "report.html").read_text()
    assert "<svg" in page and list((tmp_path / "results" / "png").glob("*.png"))


def test_a_broken_link_inside_the_package_says_how_it_is_mended(tmp_path: Path) -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("no checkout to clone")
    clone = tmp_path / "clone"
    # git for Windows does this: a text file in place of a link.
    options = ["-c", "core.symlinks=false", "--no-hardlinks", "--depth=1", "--quiet"]
    run(git, "clone", *options, ROOT.as_uri(), clone, cwd=tmp_path)
    links = sorted(link for link in (ROOT / "engine/planstep").iterdir() if link.is_symlink())
    (clone / "engine/planstep" / links[0].name).unlink()
    shutil.copy(ROOT / "setup.py", clone)
    check = [sys.executable, "setup.py"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel"]
    pip += ["--no-build-isolation", "--no-deps", "--wheel-dir", str(tmp_path), "."]
    for command in (check, pip):
        ended = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
        output = ended.stdout + ended.stderr
        assert ended.returncode, output
        assert all(f"engine/planstep/{link.name}" in output for link in links)
        assert "git config core.symlinks true" in output
    for line in re.findall(r"^ *((?:git|rm) .*)$", ended.stdout + ended.stderr, re.MULTILINE):
        run(*line.split(), cwd=clone)
    run(*check, cwd=clone)
    assert all((clone / link.relative_to(ROOT)).is_symlink() for link in links)


def test_every_package_is_listed() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        listed = tomllib.load(file)["tool"]["setuptools"]["packages"]
    top = ROOT / "engine" / "planstep"
    packages = ["planstep"]
    for folder in sorted(top.iterdir()):  # links: a recursive glob from above would skip them
        packages += sorted(
            ".".join(["planstep", *file.parent.relative_to(top).parts])
            for file in folder.glob("**/__init__.py")
        )
    assert listed == packages


def test_importing_needs_three_packages_and_no_more(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); import planstep; "
        "print(*sorted({m.partition('.')[0] for m in set(sys.modules) - before}))"
    )
    loaded = run(sys.executable, "-c", code, cwd=tmp_path).split()
    foreign = [m for m in loaded if m not in sys.stdlib_module_names and not m.startswith("_")]
    # cython_runtime belongs to compiled parts of those packages, and is no package.
    assert set(foreign) <= {"planstep", "lmdb", "msgpack", "google", "cython_runtime"}
