"""Shares a program that is killed at the n-th call that changes or reads a file, and counts its calls."""

import signal

from kit import python

_STRUCK = """
import os, signal, sys
from planstep.shared.files_log import FileObjects
from planstep.store.files import Files

calls, last = [0], int(sys.argv[1])

def struck(owner, name):
    really = getattr(owner, name)
    def call(*args, **more):
        calls[0] += 1
        if calls[0] == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return really(*args, **more)
    setattr(owner, name, call)

def arm():
    for name in ("write", "rename", "exchange", "sync_folder", "allocate", "make_folder", "remove"):
        struck(Files, name)
    for name in ("create", "get", "names", "remove"):
        struck(FileObjects, name)
    calls[0] = 0
"""


def calls_of(program: str, *words: object) -> int:
    """Runs a program, which calls arm(), to its end; returns how many calls it made."""
    return int(python(f"{_STRUCK}\n{program}\nprint(calls[0])", 0, *words).stdout.split()[-1])


def killed_at(call: int, program: str, *words: object) -> None:
    """Runs the program until its n-th call."""
    python(f"{_STRUCK}\n{program}", call, *words, status=-signal.SIGKILL)


def some_of(calls: int, number: int) -> list[int]:
    """Returns so many of the calls, spread over all of them, with the first and the last."""
    step = max(1, (calls - 1) // (number - 1))
    return sorted({*range(1, calls + 1, step), calls})
