"""Runs simulated worlds of mode "pulsar", counts the transitions taken, checks the history. Next: seed.py."""
