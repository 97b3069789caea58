"""Scripted scenes, stopped at every point. Next: runner.py."""
