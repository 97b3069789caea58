"""Offers topics, consumers, writers, readers and `process` to applications. Next: topic.py."""
