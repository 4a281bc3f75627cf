"""The actor runtime: mailboxes, actors, branches, budgets, the supervisor, the journal. It uses Trio and knows nothing of MCP."""

from .actor import (
    Actor as Actor,
    ActorState as ActorState,
    Cancelled as Cancelled,
    CancelReason as CancelReason,
    Lane as Lane,
    Outcome as Outcome,
    Raised as Raised,
    Returned as Returned,
)
from .branch import (
    MAX_DEPTH as MAX_DEPTH,
    Branch as Branch,
    Branches as Branches,
    race as race,
    run_branch as run_branch,
)
from .budget import TokenBudget as TokenBudget
from .journal import Divergence as Divergence, EntryKind as EntryKind, Journal as Journal, JournalEntry as JournalEntry
from .limits import Limits as Limits, SupervisorStatistics as SupervisorStatistics
from .mailbox import Mailbox as Mailbox, MailboxStatistics as MailboxStatistics, Slot as Slot
from .outbox import Outbox as Outbox, OutboxStatistics as OutboxStatistics
from .supervisor import Supervisor as Supervisor, open_supervisor as open_supervisor
from .threads import ThreadLimiter as ThreadLimiter, ThreadStatistics as ThreadStatistics
