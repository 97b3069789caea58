"""Spark reads every trace of a comparison, proves what each run did, and computes the figures of its report."""
