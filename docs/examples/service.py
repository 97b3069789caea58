"""A FastAPI service that survives its machine: another machine follows, takes over, and goes on.

    pip install planstep fastapi uvicorn
    python service.py a.planstep file:///nfs/shop 8001                              # machine A
    planstep follow file:///nfs/shop b.planstep --take-over-after 3s \\
        -- python service.py b.planstep file:///nfs/shop 8001                       # machine B

    curl -X POST -H 'Idempotency-Key: 1' 'localhost:8001/orders?user=ada&cents=250'

An order is an event in a topic and a sum in a table: both or neither. A client that hears nothing, or 503, asks
again with the same Idempotency-Key, on either machine, and gets the first answer.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse

import planstep


def service(store: str, url: str) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        log = planstep.Replicate(url, beat=0.5)  # B knows by beats that A is alive
        async with planstep.open_async(store, replicate=log) as app.state.db:
            await app.state.db.create_topic("orders", partitions=4, format="json", exist_ok=True)
            await app.state.db.create_table("spent", exist_ok=True)
            await app.state.db.create_table("answers", exist_ok=True)
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders")
    async def order(
        user: str, cents: int, idempotency_key: Annotated[str, Header()]
    ) -> dict[str, Any]:
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
    async def spent(user: str) -> dict[str, Any]:
        return {"user": user, "cents": await app.state.db.table("spent").get(user, 0)}

    @app.exception_handler(planstep.PlanstepError)
    async def refused(_: Request, error: planstep.PlanstepError) -> JSONResponse:
        # Whoever asks again with the same key has it counted once.
        return JSONResponse({"error": str(error)}, 503)

    return app


if __name__ == "__main__":
    _, store, url, port = sys.argv
    uvicorn.run(service(store, url), host="127.0.0.1", port=int(port), log_level="warning")
