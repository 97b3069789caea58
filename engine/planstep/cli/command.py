"""Defines the classes of all commands: they fill in STORE, wrap the help, and end quietly on a closed pipe.

    planstep topic read clicks          PLANSTEP_STORE=shop.planstep     ─▶ STORE is put in front
    planstep topic read … | head        stdout closed                    ─▶ silence, exit 0

Next: output.py.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from ..runtime.store_path import is_store


def hush() -> None:
    """Sends stdout to the null device once its reader has left: Python's last flush would fail otherwise."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Command(TyperCommand):
    """Fits the help's paragraphs to the terminal, and exits with 0 when the reader of stdout leaves."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.help = re.sub(r"(?<=\S)\n(?=\S)", " ", self.help or "")

    def get_params(self, ctx: Any) -> list[Any]:
        """Hides the type of flags in the help: they take no value."""
        params: list[Any] = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            hush()
            raise typer.Exit(0) from None


class StoreCommand(Command):
    """A command whose first argument is STORE, by default the value of PLANSTEP_STORE.

    STORE counts as left out when a required argument is missing. Where the number of arguments may vary, it
    does when the first one is not a store.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        default = os.environ.get("PLANSTEP_STORE")
        if default and self._lacks_store(ctx, args):
            args = [default, *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def _lacks_store(self, ctx: Any, args: list[str]) -> bool:
        try:
            values, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        except Exception:  # wrong usage: the real parse reports it
            return False
        places = [param for param in self.params if param.param_type_name == "argument"]
        texts: list[str] = []
        for param in places:
            value = values.get(param.name)
            if isinstance(value, (list, tuple)):
                texts += value
            elif isinstance(value, str):
                texts.append(value)
        if ctx.resilient_parsing:  # completion: the user has not typed the other arguments yet
            return not texts or not is_store(Path(texts[0]))
        if len(texts) < sum(1 for param in places if param.required):
            return True
        if len(texts) == len(places) and all(param.nargs == 1 for param in places):
            return False
        return not is_store(Path(texts[0]))
