"""The actor runtime: mailboxes, actors, branches, the supervisor and the journal. It knows Trio and nothing of MCP."""

from .actor import Actor, ActorState, ActorStatistics, Cancelled, CancelReason, Lane, Outcome, Raised, Returned
from .branch import Branch, Branches, run_branch
from .journal import Divergence, Entry, Journal, Kind
from .mailbox import Mailbox, MailboxStatistics, Slot
from .outbox import Outbox, OutboxStatistics
from .supervisor import Limits, Supervisor, SupervisorStatistics, open_supervisor
from .threads import Threads, ThreadStatistics

__all__ = [
    "Actor",
    "ActorState",
    "ActorStatistics",
    "Branch",
    "Branches",
    "CancelReason",
    "Cancelled",
    "Divergence",
    "Entry",
    "Journal",
    "Kind",
    "Lane",
    "Limits",
    "Mailbox",
    "MailboxStatistics",
    "Outbox",
    "OutboxStatistics",
    "Outcome",
    "Raised",
    "Returned",
    "Slot",
    "Supervisor",
    "SupervisorStatistics",
    "ThreadStatistics",
    "Threads",
    "open_supervisor",
    "run_branch",
]
