"""Which process has a legacy session, or a call that waits for an answer: the record of the session, or the state, names it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from trio_mcp.errors import InvalidRequestState
from trio_mcp.session import Service
from trio_mcp.session.calls.memory import StatePayload
from trio_mcp.session.recovery.session_record import StoredSession, decoded_record
from trio_mcp.storage import Store, StoreError

from ..sessions.unknown import UnknownSessions

MOST_KNOWN: Final = 10_000
"""Sessions whose process is remembered."""


@dataclass(slots=True, eq=False)
class Places:
    """The places of the sessions and calls of one service.

    Args:
        store: where the sessions are.
    """

    _service: Service
    _store: Store
    _known: OrderedDict[str, str] = field(default_factory=OrderedDict[str, str], init=False)
    _unknown: UnknownSessions = field(default_factory=UnknownSessions, init=False)

    async def of_session(self, kind: str, key: str, principal: str | None) -> str | None:
        """Return the process that a session was last seen in; None for this one, or if there is no such session of a principal.

        A store that fails knows of none: who serves the request here gets its error.

        Args:
            kind, key: of the record.
        """
        if (known := self._known.get(key)) is not None:
            self._known.move_to_end(key)
            return known
        if self._unknown.has(key, principal):
            return None
        try:
            record = await self._store.read(kind, key)
            stored = None if record is None else decoded_record(StoredSession, record.value)
        except (StoreError, ValueError):
            return None
        if stored is None or stored.principal != principal:
            self._unknown.add(key, principal)
            return None
        if self._is_here(stored.node):
            return None
        self._known[key] = stored.node
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return stored.node

    def forget_session(self, key: str) -> None:
        """Look into the store when this session is asked for again."""
        self._known.pop(key, None)

    def of_state(self, state: object) -> str | None:
        """Return the process that has sealed a `requestState`; None for this one, or if it cannot be read."""
        try:
            node = StatePayload.read(self._service.calls.sealer.peek(state).journal).node
        except InvalidRequestState:
            return None
        return None if self._is_here(node) else node

    def _is_here(self, node: str) -> bool:
        return node == self._service.calls.node
