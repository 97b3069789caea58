"""Signals as a terminal leaves them, whoever began the tests: what runs in a shell's background, or under
nohup, ignores them, and so would every child that a test is to interrupt."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
