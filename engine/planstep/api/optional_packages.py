"""Packages that planstep works with and does not need: imported at their first use, with the pip line.

    pyarrow, pandas ─▶ Any                   neither has type hints: here is where they become Any

Next: columns/arrow.py.
"""

from typing import Any

from ..errors import MissingExtra


def pyarrow() -> Any:
    """The package pyarrow; MissingExtra with the pip line when it is not installed."""
    try:
        import pyarrow.compute  # brings pyarrow along
    except ImportError as error:
        raise MissingExtra("pyarrow", "arrow") from error
    return pyarrow


def pandas() -> Any:
    """The package pandas; MissingExtra with the pip line when it is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtra("pandas", "pandas") from error
    return pandas


def is_frame(value: Any) -> bool:
    """Whether it is a table of named columns: of pyarrow, pandas, or whoever speaks Arrow's C interface.

    Single columns (arrays, series) are none: they are values.
    """
    speaks = hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")
    return speaks and (hasattr(value, "columns") or hasattr(value, "schema"))
