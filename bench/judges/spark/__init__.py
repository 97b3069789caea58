"""Spark reads every trace of a comparison, proves what each run did, and holds Python's percentiles to its own."""
