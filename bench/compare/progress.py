"""Shows progress, and turns signals into an orderly interruption.

Next: command.py.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ...cli.output import errors, say
from ..children import handled
from .harness import Step


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Lets other signals than Ctrl-C end the child and clean up, too; `nohup` keeps its meaning."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    with handled(lambda handler: handler is signal.SIG_DFL, interrupt):
        yield


@contextlib.contextmanager
def progress() -> Iterator[Callable[[Step], None]]:
    """Yields a function that shows each step: a bar on a terminal, else a line for each run."""
    if not errors.is_terminal:
        yield lambda step: say(
            f"[{step.number}/{step.total}] {step.label}: {in_minutes(step.so_far)} so far, "
            f"about {in_minutes(step.remaining_s)} left"
        )
        return
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("about {task.fields[remaining]} left"),
        console=errors,
        transient=True,
    ) as bars:
        task = bars.add_task("", total=None, remaining="…")

        def draw(step: Step) -> None:
            bars.update(
                task,
                description=f"[{step.number}/{step.total}] {step.label}".replace("[", "\\["),
                completed=step.so_far,
                total=step.so_far + step.remaining_s,
                remaining=in_minutes(step.remaining_s),
            )

        yield draw


def in_minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
