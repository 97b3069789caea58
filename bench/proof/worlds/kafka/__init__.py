"""Runs simulated worlds of mode "kafka", counts the transitions taken, checks the history. Next: seed.py."""
