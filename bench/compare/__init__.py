"""Runs systems at the same work for `planstep compare`, measures them and stores the results. Next: command.py."""
