"""A comparison for people: report.html, one file, and PNGs of its drawings."""
