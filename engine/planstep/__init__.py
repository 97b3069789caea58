"""Planstep."""
