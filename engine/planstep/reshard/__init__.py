"""Runs the main job: turns a log that is partitioned by writer into one partitioned by user, exactly once.

    source ─load─▶ topic "events" (by writer) ─reshard─▶ topic "events-by-user" + table "totals"
                                       verify: read the source again, compare it with the store

Next: events.py, job.py, verify.py.
"""
