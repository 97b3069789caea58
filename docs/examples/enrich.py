"""Orders joined with customers, exactly once, wherever it is killed.

    python enrich.py STORE [ORDERS]        run it, kill it (kill -9), run it again

    topic orders ─┐
    table customers ┴▶ enrich ─▶ topic enriched, table spent          one transaction for each batch

Filling the topic is safe to repeat, too: each order has a number, and what was published is skipped.
"""

import sys

import planstep

COUNTRIES = ("de", "fr", "it")


def setup(db: planstep.Engine) -> None:
    db.create_topic("orders", partitions=4, format="json", exist_ok=True)
    db.create_topic("enriched", partitions=4, format="json", exist_ok=True)
    db.create_table("customers", exist_ok=True)
    db.create_table("spent", exist_ok=True)
    db.table("customers").load({f"c{n}": {"country": COUNTRIES[n % 3]} for n in range(50)})


def fill(db: planstep.Engine, orders: int) -> None:
    with db.topic("orders").writer(producer="shop", linger_records=100) as writer:
        for n in range(orders):
            writer.write({"order": n, "cents": n % 97}, key=f"c{n % 50}", sequence=n)
            if n % 200 == 0:
                print("filling", flush=True)


def enrich(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
    for order in batch:
        customer = tx.get("customers", order.key, {"country": "unknown"})
        tx.write("enriched", {**order.value, **customer}, key=order.key)
        tx.add("spent", (customer["country"], order.key), order.value["cents"])
    print("enriching", flush=True)


def main(store: str, orders: int) -> None:
    with planstep.open(store) as db:
        setup(db)
        fill(db, orders)
        done = db.process(
            enrich, topic="orders", consumer="enricher", workers=2, max_records=50, until_idle=True
        )
        print(f"{done.records} orders in {done.transactions} transactions; all done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2000)
