"""The main job: a log that is partitioned by writer, made one that is partitioned by user, exactly once.

    source ─load─▶ topic "events" (by writer) ─reshard─▶ topic "events-by-user" + table "totals"
                                       verify: read the source again, hold it against the store

Next: events.py, job.py, verify.py.
"""
