"""The endpoint of an application, with its sessions and its event log where they outlive the process if they can."""

from __future__ import annotations

import trio

from trio_mcp.http import HttpLimits
from trio_mcp.session import Service
from trio_mcp.session.kept_requests import CALL_SECONDS
from trio_mcp.storage import EventStore
from trio_mcp.stores import MemoryEventStore
from trio_mcp.stores.adapters import StoredEvents

from .endpoint import LegacyEndpoint
from .stored import SessionHome


def legacy_endpoint(
    service: Service, store: EventStore | None, limits: HttpLimits, nursery: trio.Nursery
) -> LegacyEndpoint:
    """Return the endpoint of an application, with the event log and the sessions where they outlive the process if they can.

    Args:
        store: the event log; None for that of the service's store, or of this process.
    """
    durable = service.calls.log_store
    if store is None and durable is not None:
        store = StoredEvents(durable, lifetime=CALL_SECONDS)
    elif store is None:
        store = MemoryEventStore(memory=service.options.memory)
    # The sessions of a proxy end with its connections to the server.
    is_kept = service.session_type is None
    home = SessionHome(service, durable, limits.session_idle) if is_kept and durable is not None else None
    return LegacyEndpoint(service, store, limits, nursery, home)
