"""Holds records and rows as columns: batches, formats of values, Arrow and Parquet. Next: batch.py."""
