"""Notebooks as plain Python (jupytext's percent format): `jupytext --to ipynb` makes .ipynb of them."""
