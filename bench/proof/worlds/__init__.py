"""Simulated worlds: what happens in them, what may never be so, and what each seed draws.

Next: seed.py.
"""
