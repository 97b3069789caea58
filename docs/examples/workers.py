"""A FastAPI service in several processes, which take orders and consume them. They share one store.

    pip install planstep fastapi uvicorn
    PLANSTEP_STORE=shop.planstep uvicorn --workers 4 --app-dir docs/examples workers:app

    curl -X POST -H 'Idempotency-Key: 1' 'localhost:8000/orders?user=ada&cents=250'

Each worker opens the store: the first one owns it, the others attach. Each has a thread that consumes orders in the
background. Kill any of them, the owner too: a client that hears nothing asks again with the same Idempotency-Key,
and each order is taken once and billed once.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse

import planstep

STORE = os.environ.get("PLANSTEP_STORE", "shop.planstep")


def bill(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
    for order in batch.values:
        tx.write("invoices", order, key=order["user"])
        tx.add("billed", order["user"], order["cents"])


def consume(stop: threading.Event) -> None:
    with planstep.open(STORE) as db:  # the engine that this process has open already
        db.process(bill, topic="orders", consumer="billing", stop=stop)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with planstep.open_async(STORE) as app.state.db:
        for topic in "orders", "invoices":
            await app.state.db.create_topic(topic, partitions=4, format="json", exist_ok=True)
        for table in "spent", "billed", "answers":
            await app.state.db.create_table(table, exist_ok=True)
        stop = threading.Event()
        consuming = asyncio.create_task(asyncio.to_thread(consume, stop))
        yield
        stop.set()
        await consuming


app = FastAPI(lifespan=lifespan)


@app.post("/orders")
async def order(user: str, cents: int, idempotency_key: Annotated[str, Header()]) -> dict[str, Any]:
    async def place(tx: planstep.AsyncTransaction) -> dict[str, Any]:
        known: dict[str, Any] | None = await tx.get("answers", idempotency_key, None)
        if known is not None:
            return known
        answer = {"user": user, "cents": cents, "id": tx.id}
        await tx.write("orders", answer, key=user)
        await tx.add("spent", user, cents)
        await tx.put("answers", idempotency_key, answer)
        return answer

    answer: dict[str, Any] = await app.state.db.run(place)
    return answer


@app.get("/users/{user}")
async def user(user: str) -> dict[str, Any]:
    async with app.state.db.snapshot() as view:  # both sums as of one step
        spent, billed = await view.get("spent", user, 0), await view.get("billed", user, 0)
    return {"user": user, "spent": spent, "billed": billed}


@app.get("/worker")
async def worker() -> dict[str, Any]:
    return {"process": os.getpid(), "owner": app.state.db.owner}


@app.exception_handler(planstep.PlanstepError)
async def refused(_: Request, error: planstep.PlanstepError) -> JSONResponse:
    # Whoever asks again with the same key has it counted once.
    return JSONResponse({"error": str(error)}, 503)
