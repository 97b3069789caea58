"""`python -m planstep`: the command line. Next: cli/__init__.py."""

from .cli import main

main()
