"""Owns a store in a process of its own: four workers write until stdin ends. `python owner.py PATH`

Two workers move money between accounts and write each move to a topic; two copy that topic, by receiver.
"""

import random
import sys
import threading

import planstep

ACCOUNTS, EACH = 50, 1000


def transfer(db: planstep.Engine, seed: int, stop: threading.Event) -> None:
    rng = random.Random(seed)
    number = 0
    while not stop.wait(0.04):
        source, target, amount = rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS), rng.randrange(9)
        number += 1
        with db.transaction() as tx:
            tx.add("accounts", source, -amount)
            tx.add("accounts", target, amount)
            move = {"id": f"{seed}-{number}", "source": source, "target": target, "amount": amount}
            tx.write("moves", move, key=str(source))
            tx.add("counts", "moves", 1)


def copy(db: planstep.Engine, partition: int, stop: threading.Event) -> None:
    def step(tx: planstep.Transaction) -> None:
        batch = tx.read("moves", consumer="copier", partition=partition, timeout=0.05)
        tx.write_batch("by-target", batch.values, keys=[str(v["target"]) for v in batch.values])
        tx.add("counts", "copied", len(batch))

    while not stop.is_set():
        db.run(step)


def main(path: str) -> None:
    with planstep.open(path, hosts=4) as db:
        db.create_topic("moves", partitions=2, format="json")
        db.create_topic("by-target", partitions=4, format="json")
        db.create_table("accounts", shards=4)
        db.create_table("counts")
        with db.transaction() as tx:
            for account in range(ACCOUNTS):
                tx.put("accounts", account, EACH)
            tx.put("counts", "moves", 0)
            tx.put("counts", "copied", 0)
        stop = threading.Event()
        workers = [
            threading.Thread(target=work, args=(db, number, stop))
            for work in (transfer, copy)
            for number in (0, 1)
        ]
        for worker in workers:
            worker.start()
        print("ready", flush=True)
        sys.stdin.read()
        stop.set()
        for worker in workers:
            worker.join()


if __name__ == "__main__":
    main(sys.argv[1])
