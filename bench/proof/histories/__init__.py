"""Histories of the real engine under kills: written, read back, judged. Next: run.py."""
