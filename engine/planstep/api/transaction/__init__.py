"""Implements one transaction: its reads, its writes, its commit. Next: transaction.py."""
