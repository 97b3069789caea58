"""Writes the report as text, for a terminal. Next: text_report.py."""
