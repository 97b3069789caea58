"""Names what a copy of a store's folder leaves out: the socket on which its owner listens is no file to copy.

Next: copied.py.
"""

import shutil

NO_SOCKETS = shutil.ignore_patterns("lock.socket")
