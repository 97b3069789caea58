"""Defines ids, keys, batches and messages, and how each is encoded. Next: messages.py."""
