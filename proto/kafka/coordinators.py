"""Maps a transactional id or a consumer group to its coordinator tablet: by the name, for ever.

Next: messages.py.
"""

from ..ids import GROUPS, TRANSACTIONS, tablet_id
from ..keys import partition_of


def coordinator_of(name: str, hosts: int) -> int:
    """Returns the transaction coordinator of a transactional id."""
    return tablet_id(TRANSACTIONS, partition_of(name.encode(), hosts), 0)


def group_of(group: str, hosts: int) -> int:
    """Returns the coordinator of a consumer group."""
    return tablet_id(GROUPS, partition_of(group.encode(), hosts), 0)
