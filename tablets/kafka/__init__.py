"""The tablets of mode "kafka": uncommitted data in place, producers' sequences. Next: partition.py."""
