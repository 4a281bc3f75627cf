"""Requests that name a session which this process does not have, and an earlier one may have had."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import trio

from trio_mcp.errors import LimitExceeded, McpError
from trio_mcp.protocol.jsonrpc import SERVER_BUSY
from trio_mcp.runtime import Account, CancelReason
from trio_mcp.session import Peer, ServerSession, make_session
from trio_mcp.session.sizes import SESSION_SIZE

from ...asgi.access import HttpRejection
from .restoration import Restoration
from .sessions import LegacySession, LegacySessions
from .stored import NOT_READ, UNREADABLE, LeftSession, SessionHome
from .streams import SessionStream


@dataclass(slots=True, eq=False)
class Claim:
    """A claim that is being made, for those that wait for it."""

    ended: trio.Event = field(default_factory=trio.Event)
    has_failed: bool = True
    """It is not known whether there is such a session, or it could not be restored."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Takes over sessions from the store, each once.

    Args:
        new_session: makes the entry of a session, with its owner, its account and its id.
        new_stream, on_unread: see `Restoration`.
    """

    home: SessionHome
    new_session: Callable[[ServerSession, str | None, Account, str | None], LegacySession]
    new_stream: Callable[[LegacySession, Peer], SessionStream]
    on_unread: Callable[[LegacySession, SessionStream], None]
    _running: dict[str, Claim] = field(default_factory=dict, init=False)

    async def claim(self, session_id: str, peer: Peer, sessions: LegacySessions) -> None:
        """Go on with a session if the store has it and it belongs to this peer; then it is among the sessions.

        Raises:
            HttpRejection: 503, another process has it, or there is no room for it, or the store fails.
        """
        # Another request of the client may have come first.
        if (running := self._running.get(session_id)) is not None:
            await running.ended.wait()
            if running.has_failed:
                raise self.home.busy()
            return
        claim = self._running[session_id] = Claim()
        account = self.home.open_account(peer)
        try:
            # Room is made for a session that is there: it may end another one.
            left = await self.home.claim(session_id, peer.principal, partial(sessions.make_room, account))
            if left is not None:
                await self._restore(session_id, left, peer, account, sessions)
            claim.has_failed = False
        finally:
            del self._running[session_id]
            claim.ended.set()
            if not sessions.knows(session_id):
                account.close()

    async def _restore(
        self, session_id: str, left: LeftSession, peer: Peer, account: Account, sessions: LegacySessions
    ) -> None:
        service = self.home.service
        try:
            session = make_session(service, shared_channel=False, account=account, snapshot=left.stored.snapshot)
        except LimitExceeded as error:
            await self.home.give_back(left)  # noqa: ASYNC120  it has a shield and a time limit
            raise HttpRejection(503, str(error), code=SERVER_BUSY) from None
        except (McpError, ValueError) as error:
            service.records.log(UNREADABLE, level=logging.ERROR, exc_info=error)
            return
        account.draw(SESSION_SIZE)
        entry = self.new_session(session, peer.principal, account, session_id)
        try:
            answered = await Restoration(self.home, left, entry, self.new_stream, self.on_unread).run(peer)
        except Exception as error:  # noqa: BLE001  whatever a store raises
            # The next request that names the session restores it anew, here or in another process.
            session.close(CancelReason.SHUTDOWN)
            await self.home.give_back(left)  # noqa: ASYNC120  it has a shield and a time limit
            service.records.log(NOT_READ, level=logging.ERROR, exc_info=error)
            raise self.home.busy() from None
        except BaseException:
            session.close(CancelReason.SHUTDOWN)
            await self.home.give_back(left)  # noqa: ASYNC102  it has a shield and a time limit
            raise
        sessions.add(entry)
        await self.home.remove_calls(left.place, answered)
