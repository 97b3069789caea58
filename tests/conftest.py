"""Sets up all tests, and the processes that they start.

Signals are as a terminal leaves them. A shell's background job and nohup ignore some of them, and so would
every child that a test interrupts.

Java starts quickly: a test's Spark lives for seconds, and optimizing such short code takes as long as running it.

Hypothesis has no deadline: a busy machine is no failure.
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
