"""Runs the work of reshard as fast as it goes: how much data a system moves exactly once.

    reshard   a piece when it is due ─ read ─ write by key ─ flush        latencies at an offered rate
    move      piece after piece      ─ read ─ write by key                MB/s; latencies have no meaning

Next: plain.py.
"""

from typing import ClassVar

from .reshard import Reshard


class Move(Reshard):
    name = "move"
    about = "reshard as fast as it goes: how much data is moved exactly once"
    unpaced: ClassVar = True
