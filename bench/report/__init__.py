"""What `planstep compare` found, as a page and as text. Next: html/__init__.py."""
