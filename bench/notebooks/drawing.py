"""Shows the notebooks' drawings: in one style, each with a text for those who cannot see it.

    figure ─▶ show(figure, "what it shows") ─┬─▶ in Jupyter: a small PNG with that text (`alt`)
                                             └─▶ as plain Python: the text, and a window where there is a display

Next: ../report/html/drawing.py, the drawings of the report.
"""

import base64
import io
from typing import Any

import matplotlib.pyplot as plt

from planstep.bench.compare.systems import ENTRIES
from planstep.bench.compare.systems.entry import SEPARATE

DOTS_PER_INCH = 110
_COLORS = 96
"""Colours of a PNG's palette: drawings have few, and a palette makes them a third as large."""


def set_style() -> None:
    """Sets the style of all drawings of this process."""
    plt.rcParams.update(
        {
            "figure.dpi": DOTS_PER_INCH,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 11,
            "legend.frameon": False,
        }
    )


def line_style(system: str, placement: str | None = None) -> dict[str, Any]:
    """Returns a system's colour, line and marker, as in the report; marks of placement separate are hollow."""
    style = ENTRIES[system].line_style
    hollow = {"mfc": "white"} if placement == SEPARATE else {}
    return {"color": style.color, "ls": style.dash, "marker": style.marker} | hollow


def show(figure: Any, alt: str) -> None:
    """Shows a drawing and closes it. `alt` says in a sentence or two what it shows."""
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    if get_ipython() is not None:
        picture = {"image/png": base64.b64encode(_png(figure)).decode(), "text/plain": alt}
        display(picture, raw=True, metadata={"image/png": {"alt": alt}})
    else:
        print(f"[drawing: {alt}]")
        if plt.get_backend().lower() in _interactive():
            plt.show()
    plt.close(figure)


def _png(figure: Any) -> bytes:
    """Returns the drawing as a PNG with a palette."""
    from PIL import Image

    full, small = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight")
    full.seek(0)
    Image.open(full).convert("RGB").quantize(_COLORS).save(small, "PNG", optimize=True)
    return small.getvalue()


def _interactive() -> set[str]:
    from matplotlib.backends.registry import BackendFilter, backend_registry

    return set(backend_registry.list_builtin(BackendFilter.INTERACTIVE))
