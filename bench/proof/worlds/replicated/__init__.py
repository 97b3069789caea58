"""Worlds of machines that share a log: their settings, a judge, planted bugs."""
