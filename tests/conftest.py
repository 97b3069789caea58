"""Sets up all tests, and the processes that they start.

Tests import the kits by name: kit.py for all of them, and each folder's own.

A test that is a coroutine function runs in an event loop of its own.

Signals are as a terminal leaves them. A shell's background job and nohup ignore some of them, and so would
every child that a test interrupts.

Java starts quickly: a test's Spark lives for seconds, and optimizing such short code takes as long as running it.

Hypothesis has no deadline: a busy machine is no failure.
"""

import asyncio
import inspect
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), *(str(path) for path in sorted(TESTS.iterdir()) if path.is_dir())]
pytest.register_assert_rewrite(
    "kit", "contract", "conversation", "face_kit", "scripted", "scripted_client", "sides", "spoken"
)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
for _whose in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_whose, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
if find_spec("hypothesis"):
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("any speed")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {
        name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters
    }
    asyncio.run(pyfuncitem.obj(**arguments))
    return True
