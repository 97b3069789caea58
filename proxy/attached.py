"""Keeps what a process has sent to the owner of its store and has not had answered, over the owners' ends.

    sent ─▶ unanswered ─ answered ─▶ gone
                │ lost: the owner, or the link to it
                ▼
            stages ─▶ their data is gone with the owner: whoever waits for them is told
            commits ─ resumed, at an owner ─▶ each once more, in the order in which they were sent

The process does not know which of the unanswered commits the owner has done. The next owner looks for the record of
each before it does it (host/repeated_commits.py). A commit that is sent while there is no owner waits for one, too.

Left out: frames, threads, and when to give up. Ids are made unique elsewhere.

Next: ../engine/planstep/host/repeated_commits.py.
"""

from typing import NamedTuple

from ..proto.messages import Parts


class Unanswered(NamedTuple):
    """A commit to be handed in; `again`: an owner may have it already, so its record is looked for first."""

    tx: bytes
    parts: Parts
    size: int
    again: bool


class Attached:
    """Invariants: a transaction is unanswered from `sent` or `staged` to its one answer. While there is no owner,
    nothing is sent. Generations never decrease.
    """

    def __init__(self, generation: int) -> None:
        """Begins with an owner of this generation."""
        self.generation = generation
        self.has_owner = True
        self._commits: dict[bytes, Unanswered] = {}
        self._staging: dict[bytes, None] = {}

    @property
    def unanswered(self) -> list[bytes]:
        """The transactions that wait for an answer: stages, then commits, in the order in which they were sent."""
        return [*self._staging, *self._commits]

    def sent(self, tx: bytes, parts: Parts, size: int = 0) -> bool:
        """Notes a commit; returns whether to send it now. Else `resumed` has it."""
        assert tx not in self._commits and tx not in self._staging, "one request at a time"
        self._commits[tx] = Unanswered(tx, parts, size, self.has_owner)
        return self.has_owner

    def staged(self, tx: bytes) -> bool:
        """Notes data sent ahead of a commit; returns whether to send it now. Else it fails: there is no owner."""
        assert tx not in self._commits and tx not in self._staging, "one request at a time"
        if self.has_owner:
            self._staging[tx] = None
        return self.has_owner

    def answered(self, tx: bytes) -> bool:
        """Takes an answer; returns False where nobody waits for it: it was given before, or given up."""
        waited = tx in self._commits or tx in self._staging
        self._commits.pop(tx, None)
        self._staging.pop(tx, None)
        return waited

    def lost(self) -> list[bytes]:
        """Notes that there is no owner. Returns the stages under way, which end here: their data is gone."""
        self.has_owner = False
        ended, self._staging = list(self._staging), {}
        return ended

    def resumed(self, generation: int) -> list[Unanswered]:
        """Goes on with an owner, who may be the one from before; returns the commits to hand in, in order."""
        assert not self.has_owner and generation >= self.generation
        self.generation, self.has_owner = generation, True
        waiting = list(self._commits.values())
        self._commits = {one.tx: one._replace(again=True) for one in waiting}
        return waiting
