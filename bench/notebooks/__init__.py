"""Notebooks as plain Python (jupytext's percent format). `python -m planstep.bench.notebooks DIR`: as .ipynb."""
