"""Judges runs twice, in Python and on Spark, from the trace that both read. Next: trace.py."""
