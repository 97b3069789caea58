# pyright: strict
"""Shows mistakes that a type checker must find: each line marked `# wrong` is an error, no other is."""

import planstep
from planstep import AsyncEngine, Engine, Transaction


def wrong(db: Engine) -> None:
    planstep.open(3)  # wrong
    db.create_topic("t", partition=3)  # wrong
    db.create_topic("t", retention="a day")  # wrong
    db.create_topic("t", format="jsn")  # wrong
    db.create_table("t", format="jsn")  # wrong
    db.topic("t").create_consumer("c", kind="indiv")  # wrong
    planstep.open("s", mode="deterministc")  # wrong
    planstep.open("s", durability="fast")  # wrong
    planstep.open("s", placement="apart")  # wrong
    planstep.open("s", group_commit="off")  # wrong
    planstep.open_async("s", trace="all")  # wrong
    db.run(3)  # wrong
    db.switch_log_batching(True, logs="acks")  # wrong
    n: str = db.table("t").get("k", 0)  # wrong
    db.table("t").get(["a", "list"])  # wrong
    db.table("t").get("there may be none")["n"]  # wrong
    db.table("t").add("k", "1")  # wrong
    db.process(lambda tx: None, topic="t", consumer="c")  # wrong
    db.process(lambda tx, batch: None, topic="t", consumer="c", on_error="explode")  # wrong
    db.topic("t").write("x", headers={"h": 1})  # wrong
    db.topic("t").alter(retention_bytes="1 GB")  # wrong
    print(n)


async def wrong_async(db: AsyncEngine) -> None:
    def plain(tx: Transaction) -> int:
        return 1

    await db.run(plain)  # wrong
    await db.create_table("t", format="jsn")  # wrong
    place = db.table("t").put("k", 1)
    print(place.step)  # wrong
    await db.topic("t").iter_arrow()  # wrong
    db.topic("t").iter_arrow(rows=3)  # wrong
    async with db.transaction() as tx:
        total: int = tx.get("t", "k", 0)  # wrong
        print(total)
