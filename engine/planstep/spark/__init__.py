"""Topics and tables in Spark: `spark.read.format("planstep")`, `df.write.format("planstep")`.

Imported by Spark only, through engine/pyspark_planstep.py; `import planstep` never does.
"""
