"""The client's side of a transaction, one for each mode. Next: deterministic.py."""
