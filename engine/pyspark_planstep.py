"""Spark finds the data source "planstep" by this module's name; see planstep/spark/."""
