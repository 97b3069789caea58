"""Counts what one turn did for each transaction, where messages are sent and appends are made.

Next: ../runtime/ledger.py, which adds up the turns and says what is counted.
"""

Steps = dict[tuple[int, str], int]
"""(kind of tablet, message) → how often handling it changed something, counted once per transaction."""


class Spent:
    """Costs of one transaction in one turn. It uses slots, not a dataclass: every transaction makes one."""

    __slots__ = (
        "appends",
        "client_bytes",
        "decided",
        "hops",
        "messages",
        "planned",
        "requests",
        "tablet_bytes",
        "tablets",
        "visible",
    )

    def __init__(self) -> None:
        self.requests: float = 0
        self.messages: float = 0
        self.appends: float = 0  # log records that are counted one by one
        self.tablets: dict[int, None] | None = None  # that changed something, one append each
        self.hops = 0  # the most durable steps before a message that changed something
        self.client_bytes = 0
        self.tablet_bytes = 0
        self.planned = False
        self.decided = False  # the proxy was told, by one participant or for all
        self.visible = False  # from this turn on others can read its effects

    @property
    def wrote(self) -> bool:
        return bool(self.appends or self.tablets)
