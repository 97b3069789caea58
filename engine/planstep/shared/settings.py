"""Defines how a store is replicated: the shared log's URL, and settings, each with its unit and range.

    planstep.open(path, replicate="file:///disk/shop")        all defaults
    planstep.open(path, replicate=planstep.Replicate("file:///disk/shop", log_timeout=10))

Next: check_log.py.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any

from .patient import LOG_TIMEOUT
from .registry import normal_url

_DAY = 86_400


@dataclass(frozen=True)
class Replicate:
    """The settings of a replicated store, for `planstep.open(replicate=)`. Times are in seconds.

    TypeError, ValueError, which name the setting; NotSupported for a URL that no shared log has.
    """

    url: str
    """The shared log, as "file:///disk/shop" or "s3://bucket/shop"."""
    _: KW_ONLY
    mode: str = "sync"
    """Whether a commit waits for the shared log ("sync"), or is durable in the folder first and goes there behind
    that ("async")."""
    max_lag: float = 5.0
    """In mode "async" commits wait while one is older than this and not in the log; or 64 MiB are not."""
    snapshots: str | None = None
    """Where snapshots go if the log is in no object store, as "s3://bucket/shop"; None: then there are none."""
    log_timeout: float = LOG_TIMEOUT
    """How long a call to the shared log waits while it is unreachable; then the engine stops."""
    linger: float | None = None
    """The least time from one turn's end to the next one's beginning, up to 10: commits that come meanwhile share a
    turn, and an idle store commits at once. None: 0.05 in a bucket, which bills each turn, else 0."""
    local_sync: bool | None = None
    """Whether the folder syncs each turn too; None: as the log needs it, which is not in an object store."""
    keep: int = 2
    """How many snapshots stay; older turns are trimmed."""
    snapshot_bytes: int = 64 << 20
    """Bytes of log that make a snapshot due, or half of the last snapshot's size if that is more."""
    beat: float = 0.0
    """An idle owner writes a turn so often, in seconds, so that followers can tell that it lives; 0: never."""
    reads: str = "confirmed"
    """Whether a read that is no part of a commit asks the shared log if this machine still owns the store
    ("confirmed"), or shows what this machine has ("local"), which may be old by then."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", normal_url(self.url))
        if self.mode not in ("sync", "async"):
            raise ValueError(f"mode is 'sync' or 'async', not {self.mode!r}")
        _number("max_lag", self.max_lag, 0, _DAY)
        if self.mode == "async" and self.local_sync is False:
            raise ValueError("mode 'async' syncs the folder: leave local_sync out")
        if self.snapshots is not None:
            object.__setattr__(self, "snapshots", normal_url(self.snapshots))
        _number("log_timeout", self.log_timeout, 0.001, _DAY)
        if self.linger is not None:
            _number("linger", self.linger, 0, 10)
        if self.local_sync is not None and not isinstance(self.local_sync, bool):
            raise TypeError(f"local_sync is True, False or None, not {self.local_sync!r}")
        _number("keep", self.keep, 1, 1_000, whole=True)
        _number("snapshot_bytes", self.snapshot_bytes, 1, 1 << 50, whole=True)
        _number("beat", self.beat, 0, _DAY)
        if self.reads not in ("confirmed", "local"):
            raise ValueError(f"reads is 'confirmed' or 'local', not {self.reads!r}")

    @property
    def syncs_folder(self) -> bool | None:
        """Tells whether the folder syncs each turn; None: as the log needs it."""
        return True if self.mode == "async" else self.local_sync

    @classmethod
    def of(cls, given: "str | Replicate") -> "Replicate":
        """Returns settings as they are, and the defaults for a URL."""
        return given if isinstance(given, Replicate) else cls(given)


def _number(name: str, value: Any, low: float, high: float, whole: bool = False) -> None:
    kind = "a whole number" if whole else "a number of seconds"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise TypeError(f"{name} is {kind}, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name} is {kind} from {low:,} to {high:,}, not {value!r}")
