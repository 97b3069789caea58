"""The coordinators of transactions: state machines, one for each mode. Next: plan.py."""
