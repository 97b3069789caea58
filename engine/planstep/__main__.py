"""Runs the command line as `python -m planstep`. Next: cli/__init__.py."""

from .cli import main

main()
