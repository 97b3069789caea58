"""What one turn did for its transactions: counted where messages are sent and appends made.

Next: ../runtime/ledger.py, which adds the turns up and says what is counted.
"""

Steps = dict[tuple[int, str], int]
"""(kind of tablet, message) → how often it changed something, once for each transaction."""


class Spent:
    """What one turn did for one transaction. Slots and no dataclass: there is one for each."""

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
        self.appends: float = 0  # that are counted one by one
        self.tablets: dict[int, None] | None = None  # that changed something: an append each
        self.hops = 0  # of the messages that changed something
        self.client_bytes = 0
        self.tablet_bytes = 0
        self.planned = False
        self.decided = False  # the proxy is told so, by one of its participants or for all of them
        self.visible = False  # its effects can be read by others from here on

    @property
    def wrote(self) -> bool:
        return bool(self.appends or self.tablets)
