"""Tablets as mode "kafka" has them: transactions in place, producers' sequences. Next: partition.py."""
