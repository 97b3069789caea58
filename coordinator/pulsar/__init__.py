"""The coordinator of mode "pulsar": transactions.py."""
