"""One engine's hosts at work: threads, clocks, waiting, opening and closing. Next: runtime.py."""
