"""One transaction: what it reads, what it writes, how it commits. Next: transaction.py."""
