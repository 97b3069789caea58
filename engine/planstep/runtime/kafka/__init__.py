"""Runs the Kafka-style mode in the engine: its clients, its reads, its names.

    face ─▶ transactions.py (what to send, and whose) ─▶ ../core_client.py ─ requests ─▶ hosts
                                                              ◀── answers, once they are durable
    reads ─▶ views.py: up to the last stable offset, filtered by the reader

Next: hooks.py.
"""
