"""Offers tables to applications, and loads many rows into them. Next: table.py."""
