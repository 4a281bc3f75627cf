"""Reading the message of a request: its body, measured before it is parsed, in the turns of the event loop that it has."""

from __future__ import annotations

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.http import HttpLimits
from trio_mcp.protocol.json_limits import JsonLimits, Measure, measure
from trio_mcp.protocol.jsonrpc import Request, parse, unreadable
from trio_mcp.runtime import Account
from trio_mcp.runtime.loop_turn import TURN
from trio_mcp.session import Envelope, Peer, Received, Service
from trio_mcp.session.channel import MESSAGE_COST

from ...asgi.authentication import check_scopes
from ...asgi.messages import AuthorizedRequest, check_room, read_body, too_large


class MessageReader:
    """Reads the messages that clients post to one application."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._json_limits = JsonLimits(max_bytes=limits.body, max_values=limits.values)

    async def read(self, service: Service, incoming: AuthorizedRequest, account: Account) -> Envelope[Received]:
        """Read the message of a request; what it takes is drawn from `account`.

        Raises:
            HttpRejection: 503, the memory budget has no room for it; 403, its sender lacks a scope; and what `read_body` raises.
        """
        limits, peer = self._limits, incoming.peer
        announced = peer.headers.get("content-length")
        body = await read_body(incoming.receive, limits.body, limits.body_seconds, announced, account)
        turn = service.turn
        # Before it is parsed: under a flood of messages that have no room, parsing them would be most of the work.
        try:
            measured = measure(body, self._json_limits)
        except RemoteProtocolError as error:
            turn.spent += MESSAGE_COST + len(body)
            return Envelope(unreadable(error, body), peer=peer)
        size = measured.size
        check_room(account, size, measured.peak)
        if turn.is_over or len(body) > TURN:
            # Before it waits: every other request looks for room in the meantime.
            account.draw(size)
        # Many requests may have come at the same time, each on a separate connection.
        if turn.is_over:
            await turn.pass_on()
        turn.spent += MESSAGE_COST + len(body)
        message = self._parsed(service, body, measured, peer)
        # To read a large message and to validate it takes tens of milliseconds each: others have a turn in between.
        if len(body) > TURN:
            await turn.pass_on()
            turn.spent += len(body)
        return Envelope(message, peer=peer, size=size)

    def read_nowait(self, service: Service, body: bytes, peer: Peer) -> Envelope[Received]:
        """Read a message of at most `TURN` bytes that has come whole, in this turn of the event loop. Raises as `read` does."""
        if len(body) > self._limits.body:
            raise too_large(self._limits.body)
        try:
            measured = measure(body, self._json_limits)
        except RemoteProtocolError as error:
            service.turn.spent += MESSAGE_COST + len(body)
            return Envelope(unreadable(error, body), peer=peer)
        check_room(service.open_account(peer), measured.size, measured.peak)
        service.turn.spent += MESSAGE_COST + len(body)
        return Envelope(self._parsed(service, body, measured, peer), None, peer, measured.size)

    def _parsed(self, service: Service, body: bytes, measured: Measure, peer: Peer) -> Received:
        message = parse(body, self._json_limits, measured)
        if isinstance(message, Request):
            check_scopes(service, message, peer)
        return message
