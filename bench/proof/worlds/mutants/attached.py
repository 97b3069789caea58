"""Lists bugs to plant where processes share a store: views that follow, commits handed in again, links, lanes, ids.

Next: mutant.py.
"""

from dataclasses import replace

from .mutant import Mutant

_AGAIN = "host.repeated_commits:RepeatedCommits."
_SENT = "proxy.attached:Attached."
_PEER = "runtime.processes.peer:Peer."

_ALL = (
    Mutant(
        "old-mark-trusted",
        "an attached reader takes a mark of the same owner for the one that it knows",
        "runtime.following:Following.look",
        "if _marks(shown.stores) == shown.marks",
        "if [mark[0] for mark in _marks(shown.stores)] == [mark[0] for mark in shown.marks]",
    ),
    Mutant(
        "again-unlooked",
        "a commit that is handed in again is done without a look for its record",
        f"{_AGAIN}is_new",
        "known = self._coordinator.known(tx)",
        "known = None",
    ),
    Mutant(
        "again-unsaid",
        "a commit that an owner had is handed in to the next one as if none had",
        f"{_SENT}sent",
        "Unanswered(tx, parts, size, self.has_owner)",
        "Unanswered(tx, parts, size, False)",
    ),
    Mutant(
        "second-again-unsaid",
        "a commit that waited for an owner, and was lost with it, is handed in as if none had had it",
        f"{_SENT}resumed",
        "one._replace(again=True)",
        "one",
    ),
    Mutant(
        "answered-to-the-gone",
        "a commit that comes again on another link is answered to the link that has ended",
        "runtime.replies:ReplyBook.redirect",
        "waiter.future, waiter.attended = future, future is None",
        "pass",
    ),
    Mutant(
        "stage-outlives-link",
        "what a process had sent ahead stays when its link ends",
        "runtime.processes.remote_commits:RemoteCommits.end",
        "self._runtime.transactions.rollback(tx)",
        "pass",
    ),
    Mutant(
        "stages-wait",
        "data that was sent ahead to an owner that is gone is waited for",
        "runtime.processes.link:Link._disconnect",
        "self._fail_staged(self._unanswered.lost())",
        "self._unanswered.lost()",
    ),
    Mutant(
        "rest-unsent",
        "what is handed in again, and has no room in the socket, waits until another thread sends",
        "runtime.processes.link:Link._go_on",
        "self._own.look()",
        "pass",
    ),
    Mutant(
        "lane-to-two",
        "a lane is another process's before the one that has it gave it back",
        "coordinator.lane_shares:LaneShares._tell",
        "if lane.holder is None:",
        "if lane.wanted is not None:",
    ),
    Mutant(
        "given-too-late",
        "a lane that was told again is free by an answer from before",
        "coordinator.lane_shares:LaneShares.given",
        " and lane.taken <= epoch",
        "",
    ),
    Mutant(
        "lanes-outlive-link",
        "the lanes of a process stay its own when its link ends",
        f"{_PEER}end",
        "self._server.shares.drop(self.number)",
        "pass",
    ),
    Mutant(
        "ids-of-two",
        "a block of ids begins with the last id that was given out before",
        "runtime.hosting:Hosting.new_block",
        "return block[0]",
        "return max(1, block[0] - 1)",
    ),
)
MUTANTS = tuple(replace(mutant, mode="attached") for mutant in _ALL)
