"""One client's transactions. Next: deterministic.py."""
