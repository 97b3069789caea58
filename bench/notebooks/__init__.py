"""Holds the notebooks as plain Python (jupytext's percent format). __main__.py writes them as .ipynb."""
