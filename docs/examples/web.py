"""A web endpoint that writes a topic and a table in one transaction. No dependency but Planstep.

    python web.py STORE [PORT]

    curl -d '{"user": "ada", "cents": 250}' -H 'Idempotency-Key: 1' localhost:8080/orders
    curl localhost:8080/users/ada

An order is an event in a topic and a sum in a table: both or neither. A client that hears nothing asks
again with the same Idempotency-Key, and gets the first answer. Requests that wait at the same time
share a sync.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import planstep

Reply = tuple[int, dict[str, Any]]


class Shop:
    def __init__(self, db: planstep.AsyncEngine) -> None:
        self.db = db

    async def setup(self) -> None:
        await self.db.create_topic("orders", partitions=4, format="json", exist_ok=True)
        await self.db.create_table("spent", exist_ok=True)
        await self.db.create_table("answers", exist_ok=True)

    async def order(self, user: str, cents: int, request: str | None) -> dict[str, Any]:
        async def place(tx: planstep.AsyncTransaction) -> dict[str, Any]:
            if request is not None:
                known: dict[str, Any] | None = await tx.get("answers", request, None)
                if known is not None:
                    return known
            answer = {"user": user, "cents": cents, "id": tx.id}
            await tx.write("orders", answer, key=user)
            await tx.add("spent", user, cents)
            if request is not None:
                await tx.put("answers", request, answer)
            return answer

        return await self.db.run(place)

    async def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        if method == "POST" and path == "/orders":
            try:
                asked = json.loads(body)
                user, cents = str(asked["user"]), int(asked["cents"])
            except (ValueError, TypeError, KeyError):
                return 400, {"error": 'send {"user": …, "cents": …}'}
            try:
                return 200, await self.order(user, cents, headers.get("idempotency-key"))
            except (planstep.Overloaded, planstep.Conflict) as error:
                return 503, {"error": str(error)}
        if method == "GET" and path.startswith("/users/"):
            user = path.removeprefix("/users/")
            return 200, {"user": user, "cents": await self.db.table("spent").get(user, 0)}
        return 404, {"error": "POST /orders, GET /users/NAME"}

    async def serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ")
            lines = [line.partition(":") for line in head[1:] if line]
            headers = {name.strip().lower(): value.strip() for name, _, value in lines}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            status, answer = await self.reply(method, path, headers, body)
            data = json.dumps(answer).encode()
            first = (
                f"HTTP/1.1 {status} \r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(first.encode() + data)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            pass  # whoever called is gone, or speaks no HTTP
        finally:
            writer.close()


async def serve(store: str, port: int, ready: Callable[[int], object]) -> None:
    async with planstep.open_async(store) as db:
        shop = Shop(db)
        await shop.setup()
        server = await asyncio.start_server(shop.serve_one, "127.0.0.1", port, backlog=200)
        async with server:
            ready(server.sockets[0].getsockname()[1])
            await server.serve_forever()


if __name__ == "__main__":
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 8080
    try:
        asyncio.run(serve(sys.argv[1], wanted, lambda port: print(f"http://127.0.0.1:{port}")))
    except KeyboardInterrupt:
        pass
