"""Holds stores written by each version of the format: an archive, and a JSON file with its expected contents.

    format-1-MODE-HOSTS-END.tar.xz     host-*/{meta.pb, log-*, data-*, released, table/data.mdb}
    format-1-MODE-HOSTS-END.json       contents, outcomes, digests of tablets

They are never regenerated: every later version must open these files.

Next: make.py.
"""
