"""Topics, consumers, writers, readers, `process`. Next: topic.py."""
