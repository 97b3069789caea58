"""Reads and writes topics and tables from Spark: `spark.read.format("planstep")`, `df.write.format("planstep")`.

Only Spark imports it, through engine/pyspark_planstep.py; `import planstep` never does.
"""
