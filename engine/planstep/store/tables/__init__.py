"""The tables in LMDB, and checks of their pages before LMDB uses them. Next: table.py."""
