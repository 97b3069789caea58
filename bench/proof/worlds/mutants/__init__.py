"""Plants bugs, most of them published, in the real code. Next: mutant.py."""
