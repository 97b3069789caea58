"""The rows of `planstep check`, a module each. Next: registry.py."""
