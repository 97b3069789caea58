"""Writes the notebooks for Jupyter: python -m planstep.bench.notebooks DIR [--force].

    [0-9]*.py next to this file (jupytext's percent format) ─▶ DIR/*.ipynb

Either all are written, or existing files are named and nothing is touched. Exit status: 0 when they are
written; 1 when a file exists, jupytext is missing, or DIR cannot be written; 2 for wrong usage.
"""

import argparse
import shlex
import sys
from pathlib import Path

from planstep.errors import MissingExtra

SOURCES = sorted(Path(__file__).parent.glob("[0-9]*.py"))


def ipynb(source: Path) -> str:
    """Returns the text of the .ipynb file. MissingExtra without jupytext."""
    try:
        import jupytext
    except ImportError:
        raise MissingExtra("jupytext", "notebooks") from None
    notebook = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent")
    return str(jupytext.writes(notebook, fmt="ipynb")) + "\n"


def write(folder: Path, force: bool = False) -> list[Path]:
    """Writes the notebooks into `folder`, which is created; returns their paths.

    FileExistsError, MissingExtra or OSError, before anything is written where that can be known.
    """
    notebooks = {folder / f"{source.stem}.ipynb": ipynb(source) for source in SOURCES}
    existing = ", ".join(str(path) for path in notebooks if path.exists())
    if existing and not force:
        raise FileExistsError(
            f"{existing}: the notebook exists already, maybe with your changes; name another folder, "
            "or overwrite it with --force"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in notebooks.items():
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    return list(notebooks)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m planstep.bench.notebooks",
        description="Write Planstep's notebooks into DIR, as .ipynb files for Jupyter.",
    )
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="the folder; it is created if it is missing"
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    options = parser.parse_args(arguments)
    try:
        paths = write(options.folder, options.force)
    except (MissingExtra, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(*paths, sep="\n")
    print(f"{len(paths)} notebooks; to open them: jupyter lab {shlex.quote(str(options.folder))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
