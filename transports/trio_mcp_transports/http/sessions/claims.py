"""Requests that name a session which this process does not have, and an earlier one may have had."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import trio

from trio_mcp.errors import LimitExceeded, McpError
from trio_mcp.protocol.jsonrpc import SERVER_BUSY
from trio_mcp.protocol.revisions import PROGRESS_TOKEN
from trio_mcp.runtime import Account, CancelReason
from trio_mcp.session import Peer, ServerSession, make_session
from trio_mcp.session.calls.directory import UNREACHED_SECONDS, Unreached
from trio_mcp.session.calls.previous_run import PreviousRun
from trio_mcp.session.envelope import SESSION_SIZE
from trio_mcp.session.kept_requests import LeftCall, resume_requests
from trio_mcp.types import ProgressToken

from ...asgi.access import HttpRejection
from .event_log import LeftStream
from .sessions import LegacySession, LegacySessions
from .stored import EPOCH_IDS, NOT_READ, UNREADABLE, LeftSession, SessionHeld, SessionHome
from .streams import SessionStream

HELD_LOOKS: Final = (0.1, 0.2, 0.4, 0.8, 1.0)
"""Seconds between the attempts to take over a session: longer than a process that was killed counts as alive on a network."""

STAYS_ELSEWHERE: Final = (
    "This session is busy in another process of the server, which its requests have not reached for "
    f"{UNREACHED_SECONDS:g} seconds: send initialize to open another, and all requests of a session to one process."
)

# A legacy session that an earlier process has left, with its streams and the calls whose answers are owed on them.


@dataclass(frozen=True, slots=True)
class Restoration:
    """Brings one session back.

    Args:
        entry: the session, which is in no table yet.
        new_stream: makes a stream of the session for a peer.
        on_unread: sees to a stream that has no reader.
    """

    home: SessionHome
    left: LeftSession
    entry: LegacySession
    new_stream: Callable[[LegacySession, Peer], SessionStream]
    on_unread: Callable[[LegacySession, SessionStream], None]

    async def run(self, peer: Peer) -> Sequence[str]:
        """Read what was said on the streams that are not over, and go on with them.

        Args:
            peer: who asks for the session now. Its headers are those of the calls that go on.

        Returns:
            the keys of the calls that have their answers. It returns in the step in which the calls go on.

        Raises:
            Exception: whatever the store raises; then nothing goes on.
        """
        place, streams = self.left.place, self.entry.streams
        streams.log.opened = streams.log.opened_before = place.epoch * EPOCH_IDS
        by_stream: dict[int, list[LeftCall]] = {}
        for call in self.left.calls:
            by_stream.setdefault(call.record.stream, []).append(call)
        said = {number: await streams.log.left(number) for number in by_stream}
        standalone = None if not place.standalone else await streams.log.left(place.standalone)
        last = {
            number: said[number].last
            for number, calls in by_stream.items()
            if any(call.record.id not in said[number].answered for call in calls)
        }
        if standalone is not None:
            last[place.standalone] = standalone.last
        await self.home.note_continued(place, self.entry.session, last)
        streams.epoch, streams.continued = place.epoch, place.continued
        # From here on in one step: no message of the client may come in between.
        self.entry.store_in(self.home, place)
        if standalone is not None:
            stream = self.new_stream(self.entry, peer)
            stream.continue_after(place.standalone, standalone.last)
            streams.standalone = stream
        return [key for number, calls in by_stream.items() for key in self._resume(number, calls, said[number], peer)]

    def _resume(self, number: int, calls: Sequence[LeftCall], said: LeftStream, peer: Peer) -> Sequence[str]:
        """Go on with a stream; return the keys of its calls that have their answers."""
        owed = [resumable(call, said) for call in calls if call.record.id not in said.answered]
        if not said.is_whole and not self.entry.streams.log.is_in(self.home.store):
            # The lost events may have contained their answers.
            owed = [replace(call, run=PreviousRun(is_readable=False)) for call in owed]
        if owed:
            stream = self.new_stream(self.entry, peer)
            stream.continue_after(number, said.last)
            listener, stream.kept = resume_requests(self.entry.session, stream.outbox, owed, peer, self.entry.holding)
            stream.listener = listener
            self.on_unread(self.entry, stream)
        return [call.key for call in calls if call.record.id in said.answered]


def resumable(call: LeftCall, said: LeftStream) -> LeftCall:
    """Return the call with what its stream says of it: which questions were sent, and the progress that was reported."""
    run = call.run
    sent = {key: request for key, request in run.requests.items() if request.id in said.asked}
    token = progress_token(call)
    progress = None if token is None else said.progress.get(token)
    return replace(call, run=replace(run, requests=sent, progress=progress))


def progress_token(call: LeftCall) -> ProgressToken | None:
    """Return the token under which a call reports its progress."""
    meta = call.record.params.get("_meta")
    token = meta.get(PROGRESS_TOKEN) if isinstance(meta, dict) else None
    return token if isinstance(token, str | int) else None


@dataclass(slots=True, eq=False)
class Claim:
    """A claim that is being made, for those that wait for it."""

    ended: trio.Event = field(default_factory=trio.Event)
    has_failed: bool = True
    """It is not known whether there is such a session, or it could not be restored."""


@dataclass(slots=True, eq=False)
class Claims:
    """Takes over sessions from the store, each once.

    Args:
        new_session: makes the entry of a session, with its owner, its account and its id.
        new_stream, on_unread: see `Restoration`.

    Attributes:
        is_looked_for: returns whether who passes requests on looks for a session again that another process has.
    """

    home: SessionHome
    new_session: Callable[[ServerSession, str | None, Account, str | None], LegacySession]
    new_stream: Callable[[LegacySession, Peer], SessionStream]
    on_unread: Callable[[LegacySession, SessionStream], None]
    is_looked_for: Callable[[SessionHeld], bool] = field(default=lambda _held: False, init=False)
    _unreached: Unreached = field(default_factory=Unreached, init=False)
    _running: dict[str, Claim] = field(default_factory=dict, init=False)

    async def take_over(self, session_id: str, peer: Peer, sessions: LegacySessions) -> None:
        """Do the same as `claim`; a process that lives and has the session is asked for it, and releases it when it is at rest.

        Raises:
            HttpRejection: as `claim` does; and 404, requests have asked for it in vain for `UNREACHED_SECONDS`.
        """
        for seconds in (*HELD_LOOKS, None):
            sessions.quota.check_not_draining()
            try:
                await self.claim(session_id, peer, sessions)
            except SessionHeld as held:
                if self.is_looked_for(held):
                    raise
                await self._ask_for(session_id, held)  # noqa: ASYNC120  a request that is cancelled needs no rejection
                if seconds is None:
                    raise self._refusal(session_id, held) from None
            else:
                break
            await trio.sleep(seconds)
            if sessions.knows(session_id):
                # Another request has taken it over meanwhile.
                break
        self._unreached.forget(session_id)

    async def _ask_for(self, session_id: str, held: SessionHeld) -> None:
        if held.node is not None:
            self._unreached.waited(session_id)
            await self.home.ask_for(session_id, held.node)

    def _refusal(self, session_id: str, held: SessionHeld) -> HttpRejection:
        """Return the rejection of a request for a session that was not released."""
        if held.node is None or self._unreached.waited(session_id) <= UNREACHED_SECONDS:
            return held
        self._unreached.forget(session_id)
        return HttpRejection(404, STAYS_ELSEWHERE)

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
            # The next request that names the session tries to restore it again, here or in another process.
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
