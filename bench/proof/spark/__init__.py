"""Runs Spark's jobs over a store while their processes are killed: row `spark`."""
