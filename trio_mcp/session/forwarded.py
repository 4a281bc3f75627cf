"""Requests of another client that a proxy sends on unread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..protocol.codec.unknown import UnknownResult
from ..protocol.jsonrpc import RequestId
from ..runtime import Slot
from ..types import JsonObject, Model


@dataclass(slots=True, eq=False)
class ForwardedRequest:
    """A request that was sent unread; made by `ClientSession.forward`.

    Await `result` or call `give_up`, once.

    Args:
        end: withdraws it, unless it was answered.
    """

    _end: Callable[[RequestId, Slot[Model]], None]
    _id: RequestId
    _slot: Slot[Model]

    async def result(self) -> JsonObject:
        """Return the result as it came. A cancel withdraws the request at the server.

        Raises:
            PeerError: the server answered with an error.
            RemoteProtocolError: its answer is malformed.
            Disconnected: the connection ended first; `SessionLost` or `Unreachable` if the server did not process this request.
        """
        try:
            result = await self._slot.take()
        finally:
            self.give_up()
        # The end of a subscription whose server cancels it in place of an answer has no result that came (M-SUB-3s).
        return result.wire() if isinstance(result, UnknownResult) else {"resultType": "complete", **result.wire()}

    @property
    def untaken(self) -> Model | None:
        """The result, once it is there."""
        return self._slot.untaken

    def give_up(self) -> None:
        """Withdraw the request at the server, unless it has answered."""
        self._end(self._id, self._slot)
