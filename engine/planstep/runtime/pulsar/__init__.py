"""Runs the Pulsar-style mode in the engine: its clients, its reads, its names.

    face ─▶ ../client_transactions.py ─▶ writing.py ─▶ ../core_client.py ─ requests ─▶ hosts
                                                              ◀── answers, once they are durable
    reads ─▶ views.py: up to the max read position, without aborted messages
    operator ─▶ administration.py: what is open and whom it holds up, aborts

Next: hooks.py.
"""
