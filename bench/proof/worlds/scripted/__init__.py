"""Runs scripted scenarios, with a power loss at every point. Next: runner.py."""
