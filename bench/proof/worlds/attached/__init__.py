"""Worlds of processes that share one store."""
