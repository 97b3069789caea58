"""Shares what the simulated worlds of modes with data in place have: workload, end, judge. Next: workload.py."""
