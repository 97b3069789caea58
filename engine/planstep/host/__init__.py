"""One host: its tablets, one turn at a time. No clock, no thread, no randomness. Next: host.py."""
