"""The actor runtime: mailboxes, actors, branches, budgets, the supervisor, the journal. Uses Trio, does not depend on MCP."""

from typing import TYPE_CHECKING

from .. import late

if TYPE_CHECKING:
    from .actor import (
        CALL_OVER_MESSAGE,
        FINISHED_STATES,
        Actor,
        ActorState,
        Cancelled,
        CancelReason,
        Lane,
        Outcome,
        Raised,
        Returned,
    )
    from .branch import (
        MAX_DEPTH,
        Branch,
        Branches,
        check_awaited,
        race,
        run_branch,
        run_child,
    )
    from .budget import TokenBudget
    from .journal import Divergence, EntryKind, Journal, JournalEntry
    from .limits import Limits, SupervisorStatistics
    from .mailbox import Mailbox, Slot
    from .memory_budget import Account, MemoryBudget, MemoryStatistics, process_budget
    from .outbox import Outbox
    from .supervisor import Supervisor, open_supervisor
    from .threads import ThreadLimiter, ThreadStatistics, total_statistics
    from .tree import ActorSnapshot, LaneSnapshot, LaneState, snapshot_of
else:
    __getattr__, __dir__ = late.exports(
        __name__,
        {
            "actor": (
                "CALL_OVER_MESSAGE FINISHED_STATES Actor ActorState Cancelled CancelReason Lane Outcome Raised Returned"
            ),
            "branch": "MAX_DEPTH Branch Branches check_awaited race run_branch run_child",
            "budget": "TokenBudget",
            "journal": "Divergence EntryKind Journal JournalEntry",
            "limits": "Limits SupervisorStatistics",
            "mailbox": "Mailbox Slot",
            "memory_budget": "Account MemoryBudget MemoryStatistics process_budget",
            "outbox": "Outbox",
            "supervisor": "Supervisor open_supervisor",
            "threads": "ThreadLimiter ThreadStatistics total_statistics",
            "tree": "ActorSnapshot LaneSnapshot LaneState snapshot_of",
        },
    )

__all__ = [
    "CALL_OVER_MESSAGE",
    "FINISHED_STATES",
    "MAX_DEPTH",
    "Account",
    "Actor",
    "ActorSnapshot",
    "ActorState",
    "Branch",
    "Branches",
    "CancelReason",
    "Cancelled",
    "Divergence",
    "EntryKind",
    "Journal",
    "JournalEntry",
    "Lane",
    "LaneSnapshot",
    "LaneState",
    "Limits",
    "Mailbox",
    "MemoryBudget",
    "MemoryStatistics",
    "Outbox",
    "Outcome",
    "Raised",
    "Returned",
    "Slot",
    "Supervisor",
    "SupervisorStatistics",
    "ThreadLimiter",
    "ThreadStatistics",
    "TokenBudget",
    "check_awaited",
    "open_supervisor",
    "process_budget",
    "race",
    "run_branch",
    "run_child",
    "snapshot_of",
    "total_statistics",
]
