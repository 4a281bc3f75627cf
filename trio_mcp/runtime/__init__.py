"""The actor runtime: mailboxes, actors, branches, budgets, the supervisor, the journal. Uses Trio, does not depend on MCP."""

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
    from . import quota as quota, stacks as stacks
    from .actor import (
        CALL_OVER_MESSAGE as CALL_OVER_MESSAGE,
        FINISHED_STATES as FINISHED_STATES,
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
        check_awaited as check_awaited,
        race as race,
        run_branch as run_branch,
        run_child as run_child,
    )
    from .budget import TokenBudget as TokenBudget
    from .journal import (
        Divergence as Divergence,
        EntryKind as EntryKind,
        Journal as Journal,
        JournalEntry as JournalEntry,
    )
    from .limits import Limits as Limits, SupervisorStatistics as SupervisorStatistics
    from .mailbox import Mailbox as Mailbox, Slot as Slot
    from .memory_budget import (
        Account as Account,
        MemoryBudget as MemoryBudget,
        MemoryStatistics as MemoryStatistics,
        process_budget as process_budget,
    )
    from .outbox import Outbox as Outbox
    from .stacks import CodeLine as CodeLine
    from .supervisor import Supervisor as Supervisor, open_supervisor as open_supervisor
    from .threads import (
        ThreadLimiter as ThreadLimiter,
        ThreadStatistics as ThreadStatistics,
        total_statistics as total_statistics,
    )
    from .tree import (
        ActorSnapshot as ActorSnapshot,
        LaneSnapshot as LaneSnapshot,
        LaneState as LaneState,
        snapshot_of as snapshot_of,
    )
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "actor": (
                "CALL_OVER_MESSAGE FINISHED_STATES Actor ActorState CancelReason Cancelled Lane Outcome Raised Returned"
            ),
            "branch": "MAX_DEPTH Branch Branches check_awaited race run_branch run_child",
            "budget": "TokenBudget",
            "journal": "Divergence EntryKind Journal JournalEntry",
            "limits": "Limits SupervisorStatistics",
            "mailbox": "Mailbox Slot",
            "memory_budget": "Account MemoryBudget MemoryStatistics process_budget",
            "outbox": "Outbox",
            "quota": "",
            "stacks": "CodeLine",
            "supervisor": "Supervisor open_supervisor",
            "threads": "ThreadLimiter ThreadStatistics total_statistics",
            "tree": "ActorSnapshot LaneSnapshot LaneState snapshot_of",
        },
    )
