"""What holds for all tests, and for the processes that they start.

Signals as a terminal leaves them, whoever began the tests: what runs in a shell's background, or under nohup,
ignores them, and so would every child that a test is to interrupt.

A Java that is quickly there: a Spark of the tests lives for seconds, and to compile well what runs that
short takes as long as all that it does.

Properties are looked for at any speed: a machine that is busy is no finding.
"""

import os
import signal
from importlib.util import find_spec

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
