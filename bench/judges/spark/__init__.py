"""Judges every trace of a comparison with Spark, and compares Python's percentiles with Spark's own."""
