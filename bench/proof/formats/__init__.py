"""Stores as a version of this library wrote them, each an archive, with what it showed then as json.

    format-1-MODE-HOSTS-END.tar.xz     host-*/{meta.pb, log-*, data-*, released, table/data.mdb}
    format-1-MODE-HOSTS-END.json       contents, outcomes, digests of tablets

They are never made anew: what is here is what every later version has to open.

Next: make.py.
"""
