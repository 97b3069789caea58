"""The face: what users import. Everything here stands on planstep.runtime.runtime and adds no guarantee to it.

    opening ─▶ engine ─▶ transaction ─▶ (reading, consuming, scanning ─▶ conditions)
                  │                └──▶ (outbox, rowwrites) ─▶ parts ─▶ runtime
                  └────▶ handles, writer, snapshot

Next: open_engine.py.
"""
