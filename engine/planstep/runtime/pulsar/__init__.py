"""Runs the Pulsar-style mode in the engine: its clients, its reads, its names.

    face ─▶ ../client_transactions.py ─▶ writing.py ─▶ ../core_client.py ─ requests ─▶ hosts
                                                              ◀── answers, once they are durable
    reads ─▶ views.py: up to the max read position, without aborted messages

No way of opening a store leads here yet. Next: hooks.py.
"""
