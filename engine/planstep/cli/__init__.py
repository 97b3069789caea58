"""The command `planstep`: a typer application, and the pip line where typer is missing.

Next: app.py.
"""

import sys


def main() -> None:
    """Runs the command line; exits 2 with the pip line when the extra `cli` is not installed."""
    try:
        import rich  # noqa: F401 - the commands need it; better to say so before they run
        import typer  # noqa: F401
    except ImportError:
        print('the command line needs: pip install "planstep[cli]"', file=sys.stderr)
        raise SystemExit(2) from None
    from .app import run

    run()
