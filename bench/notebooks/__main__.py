"""Writes the notebooks for Jupyter: python -m planstep.bench.notebooks DIR [--execute] [--force].

    [0-9]*.py next to this file (jupytext's percent format) ─▶ DIR/*.ipynb, with --execute with their outputs

`make notebooks` keeps them with outputs next to their sources, where a code host shows them. Either all are
written, or existing files are named and nothing is touched. Exit status: 0 when they are written; 1 when a file
exists, a cell fails, a package is missing, or DIR cannot be written; 2 for wrong usage.

Next: execute.py.
"""

import argparse
import shlex
import sys
from pathlib import Path

from planstep.bench.notebooks.execute import execute
from planstep.errors import MissingExtra

SOURCES = sorted(Path(__file__).parent.glob("[0-9]*.py"))


def ipynb(source: Path, run: bool = False) -> str:
    """Returns the text of the .ipynb file; `run` adds the outputs of its cells. MissingExtra, RuntimeError."""
    try:
        import jupytext
    except ImportError:
        raise MissingExtra("jupytext", "notebooks") from None
    notebook = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent")
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number:02}"  # jupytext draws ids at random
    if run:
        execute(notebook)
    return str(jupytext.writes(notebook, fmt="ipynb")) + "\n"


def write(folder: Path, force: bool = False, run: bool = False) -> list[Path]:
    """Writes the notebooks into `folder`, which is created; returns their paths.

    FileExistsError, MissingExtra, OSError or, with `run`, RuntimeError: before anything is written where possible.
    """
    paths = {folder / f"{source.stem}.ipynb": source for source in SOURCES}
    existing = ", ".join(str(path) for path in paths if path.exists())
    if existing and not force:
        raise FileExistsError(
            f"{existing}: the notebook exists already, maybe with your changes; name another folder, "
            "or overwrite it with --force"
        )
    notebooks = {path: ipynb(source, run) for path, source in paths.items()}
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
    parser.add_argument(
        "--execute", action="store_true", help="run the cells, and keep their outputs"
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    options = parser.parse_args(arguments)
    try:
        paths = write(options.folder, options.force, options.execute)
    except (MissingExtra, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(*paths, sep="\n")
    print(f"{len(paths)} notebooks; to open them: jupyter lab {shlex.quote(str(options.folder))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
