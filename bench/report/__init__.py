"""Shows the results of `planstep compare` as a page and as text. Next: html/__init__.py."""
