"""Tries every order of events in a small world of real hosts. Next: search.py."""
