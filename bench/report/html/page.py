"""Writes report.html: one file for people, verification first; its drawings also as PNGs.

    summary (and its `spark`) + figures ─▶ sections.py: the parts ─▶ report.html, report.css ─▶ one file
                                       └▶ drawings ─▶ SVG inlined; DIR/png/<name>.png

The template escapes all text from results. It does not escape the style and the SVGs, which are made here.

Next: sections.py.
"""

import json
import os
import shutil
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from planstep.errors import MissingExtra

from ...compare.ranking import DURABILITIES
from ...compare.result_folder import PAGE, PICTURES, RESULTS, replace_file
from ...judges.spark_process import RESULT as SPARK
from ..text.blocks import number
from .colors import style, variable
from .drawing import Rendered, line, matplotlib, render
from .sections import Page, page

_COLORS = "/* the colours of drawings */"


def write(folder: Path, summary: dict[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
    """Writes folder/report.html and folder/png; returns {"html": …, "png": […]}, relative to `folder`.

    MissingExtra without matplotlib and jinja2; OSError where the folder cannot be written.
    """
    matplotlib()
    content = page(summary, figures)
    rendered = {drawing.name: render(drawing) for drawing in content.drawings}
    text = html(content, rendered)
    fresh = folder / f"{PICTURES}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for name, one in rendered.items():
        (fresh / f"{name}.png").write_bytes(one.png)
    shutil.rmtree(folder / PICTURES, ignore_errors=True)
    fresh.replace(folder / PICTURES)
    replace_file(folder / PAGE, text)
    return {"html": PAGE, "png": [f"{PICTURES}/{name}.png" for name in rendered]}


def html(content: Page, rendered: dict[str, Rendered]) -> str:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise MissingExtra("jinja2", "bench") from None

    package = files(__package__)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = number
    environment.filters["at"] = lambda n, names: names[n]
    environment.filters["kind"] = lambda part: type(part).__name__
    template = environment.from_string(package.joinpath("report.html").read_text(encoding="utf-8"))
    css = package.joinpath("report.css").read_text(encoding="utf-8")
    text = template.render(
        page=content,
        drawings=rendered,
        css=css,
        line=line,
        color=variable,
        durabilities=DURABILITIES,
    )
    return text.replace(_COLORS, style(text), 1)


def again(folder: Path) -> dict[str, Any]:
    """Makes the report again from `folder`: results.json, and the figures of spark.json or of the traces.

    OSError or ValueError where it holds no comparison.
    """
    summary = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    if "systems" not in summary:
        raise ValueError(f"{folder / RESULTS}: no run of this comparison has ended")
    figures = None
    if (folder / SPARK).exists():
        proof = json.loads((folder / SPARK).read_text(encoding="utf-8"))
        summary["spark"] = proof.get("spark") or summary.get("spark")
        figures = proof.get("figures")
    if not (figures and figures.get("runs")):
        from .figures import figures as in_python

        figures = in_python(folder, summary)
    return write(folder, summary, figures)


def main() -> None:
    """Runs python -m planstep.bench.report.html DIR."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print("usage: python -m planstep.bench.report.html DIR", file=sys.stderr)
        raise SystemExit(2)
    folder = Path(sys.argv[1])
    try:
        report = again(folder)
    except (OSError, ValueError, MissingExtra) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    print(os.fspath(folder / report["html"]))
