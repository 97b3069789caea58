"""Stands between a client and an S3 server as the wire, on which requests get lost, late, repeated or changed.

    client ─▶ Wire ─ faults(method, path) ─▶ server      answers come back, or do not

Next: rows/shared_servers.py.
"""

import http.client
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .s3_servers import signature


class Wire(ThreadingHTTPServer):
    """A proxy before a server: `faults` says of each request what goes wrong with it.

    ""        nothing
    lost      it is served, and the line is cut before its answer
    refused   the line is cut at once
    late      the line is cut, and it is served once `deliver` is called
    twice     it is served twice, and the second answer counts
    hang      no answer comes
    plain     it is served without its condition (If-None-Match)
    503, or 403 AccessDenied: this is the answer, and the server never hears of it

    It serves one request at a time, so that the server behind it need not be atomic.
    """

    daemon_threads = True

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.behind = server.removeprefix("http://")
        self.faults: Callable[[str, str], str] = lambda method, path: ""
        self.seen: list[str] = []
        self.on_their_way: list[Callable[[], object]] = []
        self.ended = threading.Event()
        self.lock = threading.Lock()

    def faults_of_puts(self, *kinds: str) -> None:
        """Gives one of these to each of the next requests that put an object."""
        left = list(kinds)
        self.faults = lambda method, path: left.pop(0) if left and method == "PUT" else ""

    def deliver(self) -> None:
        """Serves what is late, and lets nothing go wrong any more."""
        self.faults = lambda method, path: ""
        while self.on_their_way:
            self.on_their_way.pop(0)()

    def handle_error(self, *whose: Any) -> None:
        """Leaves out clients that went away; the caller sees any other error by what it does not get."""


@contextmanager
def wire_to(server: str) -> Iterator[Wire]:
    """Yields a wire to the server at this address, on which nothing goes wrong yet."""
    with Wire(server) as wire:
        thread = threading.Thread(target=wire.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield wire
        finally:
            wire.ended.set()
            wire.shutdown()
            thread.join()


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Wire

    def _serve(self) -> None:
        wire = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = wire.faults(self.command, self.path)
        wire.seen.append(f"{self.command} {fault}".rstrip())
        if fault[:1].isdigit():
            status, _, code = fault.partition(" ")
            text = f"<Error><Code>{code}</Code><Message>a-secret</Message></Error>" if code else ""
            self._answer(int(status), {"ETag": '"none"'}, text.encode())
        elif fault in ("refused", "late", "hang"):
            self.close_connection = True
            if fault == "late":
                wire.on_their_way.append(lambda: self._ask(body))
            if fault == "hang":
                wire.ended.wait(60)
        else:
            if fault == "plain":
                self._drop_condition()
            if fault == "twice":
                self._ask(body)
            answer = self._ask(body)
            if fault == "lost":
                self.close_connection = True
            else:
                self._answer(*answer)

    do_GET = do_PUT = do_DELETE = do_POST = _serve

    def _drop_condition(self) -> None:
        """Takes If-None-Match out of the request, and signs what is left."""
        del self.headers["If-None-Match"]
        authorization = self.headers["Authorization"]
        if authorization is None:
            return
        signed = re.findall("SignedHeaders=([a-z0-9;-]+)", authorization)[0].split(";")
        headers = {name: self.headers[name] for name in signed if name in self.headers}
        del self.headers["Authorization"]
        self.headers["Authorization"] = signature(self.command, self.path, headers)

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Sends the request on, and returns the server's answer."""
        with self.server.lock:
            line = http.client.HTTPConnection(self.server.behind, timeout=60)
            try:
                line.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() != "connection":
                        line.putheader(name, value)
                line.endheaders(body)
                answer = line.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()
            finally:
                line.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        left_out = ("connection", "transfer-encoding", "content-length")
        lines = [f"HTTP/1.1 {status} {http.client.responses.get(status, '')}"]
        lines += [
            f"{name}: {value}" for name, value in headers.items() if name.lower() not in left_out
        ]
        lines += [f"Content-Length: {len(body)}", "", ""]
        self.wfile.write("\r\n".join(lines).encode() + body)

    def log_message(self, *words: Any) -> None:
        pass
