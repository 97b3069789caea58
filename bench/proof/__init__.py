"""Proof under faults: each row of RELIABILITY.md is a command that anyone can run, `planstep check ROW`.

    command.py ─▶ rows/registry.py: which row ─▶ its module: run(asked) ─▶ Found ─▶ --json, or words

Here, and only here in bench/, the engine's inside is at hand: what is proven is the cores and the store
themselves, with nothing but time, network, disk and randomness exchanged.

Next: rows/registry.py.
"""
