"""Runs one engine's hosts: threads, clocks, waiting, opening and closing. Next: runtime.py."""
