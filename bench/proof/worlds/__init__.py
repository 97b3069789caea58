"""Runs simulated worlds: draws each from a seed, gives it work, and checks its invariants.

Next: seed.py.
"""
