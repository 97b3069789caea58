"""The face, which users import. It is built on planstep.runtime.runtime and adds no guarantee to it.

    open_engine ─▶ Engine ─has─▶ Context ◀─have─ Topic, Table, Reader, Writer, SnapshotView, Transaction
                     ├─has─▶ Names, Lifetime                                                     │
                     └ Transaction ─has─▶ Lifecycle ─has─▶ Contents ─▶ parts ─▶ runtime ◀────────┘

Next: open_engine.py.
"""
