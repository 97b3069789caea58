"""Maps a transaction coordinator's number to its tablet, and back, for ever.

Coordinator c lives on host c % hosts, as the tablet with number c // hosts.

Next: messages.py.
"""

from ..ids import TABLETS_MAX, TRANSACTIONS, host_of, tablet_id


def coordinator_tablet(number: int, hosts: int) -> int:
    """Returns the tablet of transaction coordinator `number`, from 0."""
    return tablet_id(TRANSACTIONS, number % hosts, number // hosts)


def coordinator_number(tablet: int, hosts: int) -> int:
    """Returns the number of the coordinator that is this tablet."""
    return tablet % TABLETS_MAX * hosts + host_of(tablet)
