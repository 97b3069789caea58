"""Refuses to build while a link inside engine/planstep is broken; pyproject.toml says all the rest of the build.

`python setup.py` alone checks and builds nothing: `make setup` and `make lint` call it so. In a source
distribution folders stand in place of the links.
"""

import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent / "engine" / "planstep"
LINKED = ("bench", "coordinator", "proto", "proxy", "tablets")


def repair(package: Path) -> str | None:
    """Says which links are broken and which commands mend them; None if all are whole."""
    broken = [name for name in LINKED if not (package / name / "__init__.py").is_file()]
    if not broken:
        return None
    links = " ".join(f"engine/planstep/{name}" for name in broken)
    return (
        f"These must be links to the folders of the same names at the top: {links}.\n"
        "Repair them in the top folder (on Windows, switch on Developer Mode first):\n"
        "    git config core.symlinks true\n"
        f"    rm -rf {links}\n"
        f"    git checkout -- {links}"
    )


wrong = repair(PACKAGE)
if wrong is not None:
    sys.exit(wrong)
if sys.argv[1:]:
    from setuptools import setup

    setup()
