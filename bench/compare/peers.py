"""Fetches what pip does not bring of the products that this engine is compared with, and says what is missing.

    python -m planstep.bench.compare.peers      `make peers` calls it, once pip has brought the products' clients

It exits with 1 if something could not be fetched. A product that the machine's own packages bring is only named,
with the command that installs it: no root is needed here.

Next: systems/apache_kafka_jars.py.
"""

import sys

from .systems import ENTRIES


def main() -> int:
    """Fetches and tells; returns the exit status."""
    entries = [entry for entry in ENTRIES.values() if entry.peer]
    failed = False
    for fetch in dict.fromkeys(entry.fetch for entry in entries):
        try:
            if fetch is not None:
                fetch(print)
        except OSError as error:
            print(error, file=sys.stderr)
            failed = True
    for entry in entries:
        print(f"{entry.name}: {entry.unavailable() or 'ready'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
