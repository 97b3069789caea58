"""Benchmarks: `make bench`. Each figure beside a bare durable append of the same bytes, in one run."""
