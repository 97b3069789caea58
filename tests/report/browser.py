"""Drives a headless Chromium over its DevTools pipe: no driver program, no package.

    Browser(folder)          starts it, with a profile in the folder
      .open(page, width, …)  loads a file at that width, light or dark, on a screen or for print
      .evaluate(script)      runs JavaScript in the page, and returns its value
      .close()               ends it

Chromium reads commands from descriptor 3 and writes replies and events to 4: JSON, each ended by a zero byte.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    *("--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--no-default-browser-check", "--disable-extensions", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-crash-reporter", "--disable-breakpad"),
)
_REPLY_S = 60.0
_HEIGHT = 900
_ABOVE = 10
"""Descriptors from here on are none of those that Chromium is given."""


def program() -> str | None:
    """Returns the path of Chromium or Chrome, None where there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """A running Chromium with one page."""

    def __init__(self, folder: Path) -> None:
        found = program()
        assert found is not None
        ends = [*os.pipe(), *os.pipe()]
        commands, self._commands, self._replies, replies = (
            fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for end in ends
        )
        for end in ends:
            os.close(end)
        self._number, self._read = 0, b""
        root = ["--no-sandbox"] * (os.geteuid() == 0)  # Chromium's sandbox refuses root
        self._process = os.posix_spawn(
            found,
            [found, *_OPTIONS, *root, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
            file_actions=[
                *((os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_RDWR, 0) for n in (0, 1, 2)),
                (os.POSIX_SPAWN_DUP2, commands, 3),
                (os.POSIX_SPAWN_DUP2, replies, 4),
            ],
            setpgroup=0,
        )
        os.close(commands)
        os.close(replies)
        self._session: dict[str, str] = {}
        try:
            target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
            attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
            self._session = {"sessionId": attached["sessionId"]}
            self._call("Page.enable")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends Chromium and all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._commands)
        os.close(self._replies)

    def open(self, page: Path, width: int, scheme: str = "light", media: str = "screen") -> None:
        """Loads a page in a window of `width` CSS pixels; `scheme` is the colours that the reader prefers."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": _HEIGHT, "deviceScaleFactor": 1, "mobile": False},
        )
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", {"media": media, "features": preferred})
        self._call("Page.navigate", {"url": page.absolute().as_uri()})
        self._until(lambda message: message.get("method") == "Page.loadEventFired")

    def evaluate(self, script: str) -> Any:
        """Returns the value of an expression; if it is a promise, the value that it comes to."""
        reply = self._call(
            "Runtime.evaluate",
            {"expression": script, "awaitPromise": True, "returnByValue": True},
        )
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def _call(self, method: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters or {}} | self._session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._commands, text) :]
        reply = self._until(lambda message: message.get("id") == number)
        assert "error" not in reply, f"{method}: {reply['error']}"
        return dict(reply["result"])

    def _until(self, wanted: Any) -> dict[str, Any]:
        """Returns the first message that is wanted; others are dropped."""
        end = time.monotonic() + _REPLY_S
        while True:
            while b"\0" in self._read:
                text, self._read = self._read.split(b"\0", 1)
                message: dict[str, Any] = json.loads(text)
                if wanted(message):
                    return message
            ready, *_ = select.select([self._replies], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"Chromium did not answer within {_REPLY_S:g} s"
            read = os.read(self._replies, 1 << 20)
            assert read, "Chromium has ended"
            self._read += read
