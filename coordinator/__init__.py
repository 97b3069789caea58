"""The state machines that order and decide, one for each mode. Next: plan.py."""
