"""The tablets of mode "pulsar": messages in place, aborted ids in memory and in snapshots. Next: snapshots.py."""
