"""Two judges of what a run did: one in Python, one on Spark, and the trace that both read. Next: trace.py."""
