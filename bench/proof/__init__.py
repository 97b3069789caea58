"""Proves the engine under faults: each row of RELIABILITY.md is a command, `planstep check ROW`.

    command.py ─▶ rows/registry.py: finds the row ─▶ its module: run(options) ─▶ RowResult ─▶ --json, or text

Only this part of bench/ may import the engine's internals: it runs the real cores and the real store, and
replaces nothing but time, network, disk and randomness.

Next: rows/registry.py.
"""
