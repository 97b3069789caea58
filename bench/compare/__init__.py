"""`planstep compare`: systems at the same work, measured and kept. Next: command.py."""
