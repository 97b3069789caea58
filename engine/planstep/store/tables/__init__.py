"""The tables in LMDB, and what looks at their pages before LMDB does. Next: table.py."""
