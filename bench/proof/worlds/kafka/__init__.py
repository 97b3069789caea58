"""Worlds of mode "kafka": work, coverage of its state machines, what must hold. Next: seed.py."""
