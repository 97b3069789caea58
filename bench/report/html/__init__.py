"""Makes the report for people: report.html, one file, and PNGs of its drawings."""
