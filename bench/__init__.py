"""Two things that measure: `make bench`, and the comparison of systems, `planstep compare`.

    bench_*.py     pytest-benchmark: figures beside a bare durable append of the same bytes, in one run
    compare.py     the command ─▶ plan.py ─▶ harness.py ─▶ summary.py ─▶ words.py
    systems/       who is compared                          workloads/  at what

Next: compare.py.
"""
