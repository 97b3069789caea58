"""Measures, compares and proves the engine.

    micro/      micro-benchmarks (pytest-benchmark), next to a bare durable append of the same bytes
    compare/    `planstep compare`: systems/ has the systems under test, workloads/ their work
    judges/     judges runs by their traces, in Python and on Spark
    report/     shows the results as a page and as text
    notebooks/  lessons in four notebooks
    proof/      `planstep check`
    children.py starts child processes, and ends them with everything that they started

Next: compare/command.py.
"""
