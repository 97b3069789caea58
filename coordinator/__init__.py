"""The state machine that orders and decides. Next: plan.py."""
