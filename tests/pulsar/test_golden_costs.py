"""Tests the costs of one transaction of mode "pulsar", for 1 to 3 partitions and 1 to 3 subscriptions.

The golden is tests/golden/costs/pulsar.txt: PLANSTEP_GOLDEN=write makes it anew; then read it. Batched logs wait
for 30 ms, so that the registrations of a transaction share an entry on any machine.
"""

import os
from pathlib import Path
from typing import Any

from engine_kit import opened

from planstep.runtime.ledger import Costs

GOLDEN = Path(__file__).parents[1] / "golden" / "costs" / "pulsar.txt"
BATCHED = {
    "log_batching": True,
    "log_batch_delay_ms": 30.0,
    "ack_log_batching": True,
    "ack_log_batch_delay_ms": 30.0,
}


def counted(placement: Any, batched: bool, k: int, s: int) -> Costs:
    """Counts a transaction that writes to k partitions and reads s; all messages go with the commit."""
    with opened(placement=placement, **(BATCHED if batched else {})) as db:
        db.create_topic("in", partitions=3, format="utf8")
        db.create_topic("out", partitions=3, format="utf8")
        for partition in range(3):
            db.topic("in").write("x", partition=partition)
        db.topic("in").create_consumer("c")
        with db.transaction() as tx:  # a partition's first one takes a snapshot: one append more
            for partition in range(3):
                tx.write("out", "x", partition=partition)
        db._runtime.hooks.may_send = lambda *_: False
        with db.transaction() as tx:
            for partition in range(s):
                assert tx.read("in", "c", partition=partition)
            for partition in range(k):
                tx.write("out", "x", partition=partition)
        return db.costs(tx.id)


def test_golden() -> None:
    lines = [
        "One transaction: k partitions written by a batch each, s subscriptions acknowledged, alone.",
        "Batched: both logs. Appends 3(k + s + 1), batched 4 + 2k + 2s. See runtime/ledger.py.",
        "",
        "placement  batched  k  s  requests  messages  appends  hops  visible",
    ]
    for placement in ("shared", "separate"):
        for batched in (False, True):
            for k in (1, 2, 3):
                for s in (1, 2, 3):
                    costs = counted(placement, batched, k, s)
                    assert costs.requests == 2 + 2 * k + 2 * s
                    assert costs.messages == 2 * k + 2 * s
                    assert costs.appends == (4 + 2 * k + 2 * s if batched else 3 * (k + s + 1))
                    lines.append(
                        f"{placement:9}  {'yes' if batched else 'no':7}  {k}  {s}"
                        f"  {costs.requests:8g}  {costs.messages:8g}  {costs.appends:7g}"
                        f"  {costs.hops:4}  {costs.hops_visible:7}"
                    )
    text = "\n".join(lines) + "\n"
    if os.environ.get("PLANSTEP_GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
