"""The actor runtime: mailboxes, actors, branches, budgets, the supervisor and the journal. It knows Trio and nothing of MCP."""

from .actor import Actor, ActorState, ActorStatistics, Cancelled, CancelReason, Lane, Outcome, Raised, Returned
from .branch import MAX_DEPTH, Branch, Branches, race, run_branch
from .budget import Budget
from .journal import Divergence, Entry, Journal, Kind
from .mailbox import Mailbox, MailboxStatistics, Slot
from .outbox import Outbox, OutboxStatistics
from .supervisor import Limits, Supervisor, SupervisorStatistics, open_supervisor
from .threads import Threads, ThreadStatistics

__all__ = [
    "MAX_DEPTH",
    "Actor",
    "ActorState",
    "ActorStatistics",
    "Branch",
    "Branches",
    "Budget",
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
    "race",
    "run_branch",
]
