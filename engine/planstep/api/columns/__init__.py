"""Batches as columns, the formats of values, Arrow and Parquet. Next: batch.py."""
