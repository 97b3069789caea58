"""Imports optional packages at their first use; MissingExtra tells the pip line.

    pyarrow, pandas ─▶ Any                   neither has type hints: here they become Any

Next: columns/arrow.py.
"""

from typing import Any

from ..errors import MissingExtra


def pyarrow() -> Any:
    """Returns the package pyarrow; MissingExtra with the pip line when it is not installed."""
    try:
        import pyarrow.compute  # brings pyarrow along
    except ImportError as error:
        raise MissingExtra("pyarrow", "arrow") from error
    return pyarrow


def pandas() -> Any:
    """Returns the package pandas; MissingExtra with the pip line when it is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtra("pandas", "pandas") from error
    return pandas


def is_frame(value: Any) -> bool:
    """Returns whether a value is a table of named columns: of pyarrow, pandas, or with Arrow's C interface.

    Single columns (arrays, series) are not: they are values.
    """
    speaks = hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")
    return speaks and (hasattr(value, "columns") or hasattr(value, "schema"))
