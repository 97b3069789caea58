"""What holds for all tests, and for the processes that they start.

Signals as a terminal leaves them, whoever began the tests: what runs in a shell's background, or under nohup,
ignores them, and so would every child that a test is to interrupt.

A Java that is quickly there: a Spark of the tests lives for seconds, and to compile well what runs that
short takes as long as all that it does.
"""

import os
import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
for _whose in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_whose, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
