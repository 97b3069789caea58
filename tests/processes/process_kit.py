"""A process beside the test's own, with the same store open: it runs what it is sent, line by line.

other = Other(path)             opens the store there
other("db.topic('t').read()")   the value of an expression, by pickle; its error is raised here
other.run("x = 1")              statements
"""

import base64
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Self

_LOOP = """
import base64, os, pickle, sys, threading, time
import planstep
out, sys.stdout = sys.stdout, sys.stderr
names = {"planstep": planstep, "os": os, "time": time, "threading": threading}
for line in sys.stdin:
    kind, code = pickle.loads(base64.b64decode(line))
    try:
        value = eval(code, names) if kind == "eval" else exec(code, names)
        answer = True, value
    except BaseException as error:
        answer = False, error
    out.write(base64.b64encode(pickle.dumps(answer)).decode() + "\\n")
    out.flush()
"""


class Code(str):
    """Code for another process, as the value of an option."""

    def __repr__(self) -> str:
        return str(self)


class Other:
    """A child process; its `db` is the store at `path`, opened with `options`."""

    def __init__(self, path: Any, **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOOP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.path, self.options = str(path), options
        try:
            self.run(f"db = planstep.open({self.path!r}, **{options!r})")
        except BaseException:
            self.end()
            raise

    def _ask(self, kind: str, code: str) -> Callable[[], Any]:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(base64.b64encode(pickle.dumps((kind, code))).decode() + "\n")
        process.stdin.flush()

        def answer() -> Any:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"the process ended with {process.wait(60)}"
            done, value = pickle.loads(base64.b64decode(line))
            if not done:
                raise value
            return value

        return answer

    def __call__(self, code: str) -> Any:
        return self._ask("eval", code)()

    def run(self, code: str) -> None:
        self._ask("exec", code)()

    def begin(self, code: str) -> Callable[[], Any]:
        """Sends an expression; its value is what the returned function returns later."""
        return self._ask("eval", code)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
        if number == signal.SIGSTOP:  # its threads stop one after the other
            os.waitpid(self.pid, os.WUNTRACED)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        """Closes the store there, and ends the process."""
        if self._process.poll() is None:
            self.run("db.close()")
            self.end()

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.close()
        elif self._process.poll() is None:
            self.kill()
