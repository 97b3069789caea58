"""Sends requests outside of transactions in the Pulsar-style mode: plain writes, and new subscriptions.

A consumer need not be created before it reads: its first commit makes its subscriptions, at the log's start.

Next: ../client_requests.py.
"""

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from ...proto.pulsar.messages import Seek, TrimTo
from ..client_requests import ClientRequests

if TYPE_CHECKING:
    from .hooks import PulsarHooks


class Requests(ClientRequests):
    _mode: "PulsarHooks"

    def __init__(self, mode: "PulsarHooks") -> None:
        super().__init__(mode, TrimTo)
        self._subscribing = threading.Lock()

    def write(self, tx: bytes, batches: Any) -> None:
        producer = self._mode.writing.plain_name
        call = self._client.call(partial(self.ended_plain, tx, batches))
        self._core.plain(call, producer, batches, tx=tx)

    def subscribe(self, tablet: int, consumer: str, individual: bool) -> None:
        """Makes a subscription of a partition where there is none."""
        views = self._mode.in_place_views
        views.follow()
        if views.cursor(tablet, consumer) is not None:
            return
        with self._subscribing:  # a second Seek would drop what is pending
            views.follow()
            if views.cursor(tablet, consumer) is None:
                start, _ = views.whole_log(tablet)
                self.request(
                    tablet,
                    partial(Seek, subscription=consumer, position=start, individual=individual),
                )
