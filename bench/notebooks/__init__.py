"""Holds the notebooks as plain Python, in jupytext's percent format. __main__.py writes them as .ipynb.

Next: drawing.py, which shows their drawings.
"""
