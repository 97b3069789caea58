"""Makes and judges histories of the real engine under kill -9. Next: run.py."""
