"""Measures, compares and proves the engine.

    micro/      pytest-benchmark: figures beside a bare durable append of the same bytes, in one run
    compare/    `planstep compare`: systems/, who is compared, and workloads/, at what
    judges/     what a run did, judged in Python and on Spark
    report/     what was found, as a page and as text
    notebooks/  the same, to go through step by step
    proof/      `planstep check`

Next: compare/command.py.
"""
