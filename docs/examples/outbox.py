"""An outbox: what happens here and what the world is told cannot disagree.

    place_order ─▶ table orders + topic outbox         one transaction
    relay       ─▶ reads the outbox, delivers to a sink outside, then moves its position

Between delivering and moving the relay may be killed; the same records are delivered again then. They
have the same ids (partition and offset never change), so the sink keeps each once: here a SQLite table
with a primary key, elsewhere an idempotency key of an API.
"""

import json
import sqlite3
from typing import Any, Protocol

import planstep


def setup(db: planstep.Engine) -> None:
    db.create_table("orders", exist_ok=True)
    db.create_topic("outbox", partitions=2, format="json", exist_ok=True)


def place_order(db: planstep.Engine, number: str, user: str, cents: int) -> bool:
    """False when the order is there already: a client that asks twice orders once."""

    def place(tx: planstep.Transaction) -> bool:
        if tx.get("orders", number) is not None:
            return False
        tx.put("orders", number, {"user": user, "cents": cents})
        tx.write("outbox", {"event": "ordered", "order": number, "user": user}, key=user)
        return True

    return db.run(place)


class Sink(Protocol):
    def deliver(self, event_id: str, event: dict[str, Any]) -> None: ...


class Mailbox:
    """The world outside; it takes the same event twice without harm."""

    def __init__(self, path: str) -> None:
        self.database = sqlite3.connect(path)
        self.database.execute("CREATE TABLE IF NOT EXISTS events (id PRIMARY KEY, event)")

    def deliver(self, event_id: str, event: dict[str, Any]) -> None:
        with self.database:
            self.database.execute(
                "INSERT OR IGNORE INTO events VALUES (?, ?)", (event_id, json.dumps(event))
            )


def relay(db: planstep.Engine, sink: Sink) -> int:
    """Delivers all that is there; how many events that was. Without `until_idle` it would wait for more."""
    delivered = 0
    with db.reader("outbox", consumer="relay", max_records=10, until_idle=True) as reader:
        for tx, batch in reader:
            for record in batch:
                sink.deliver(f"{record.partition}-{record.offset}", record.value)
            tx.commit()  # all of it is outside: go on behind it
            delivered += len(batch)
    return delivered


if __name__ == "__main__":
    with planstep.open("outbox.planstep") as db:
        setup(db)
        for n in range(25):
            place_order(db, f"order-{n}", f"user-{n % 5}", 100 * n)
        print(relay(db, Mailbox("mailbox.sqlite")), "events delivered")
