"""Shares helpers between tests of followers."""

from typing import Any

from replica_kit import Machines

import planstep


def begun(machines: Machines, name: str = "a", **settings: Any) -> planstep.Engine:
    db = machines.open(name, **settings)
    db.create_table("t").put("k", 0)
    return db


def follow(machines: Machines, name: str = "f", **settings: Any) -> planstep.Follower:
    return planstep.follow(machines.folder(name), machines.url, **settings)


def shown(me: planstep.Follower, at_least: Any) -> dict[Any, Any]:
    with me.snapshot(at_least=at_least) as view:
        return dict(view.scan("t"))
