"""The rules that the messages of a connection must keep, whatever was interrupted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...protocol.jsonrpc import ErrorResponse, Notification, Request, RequestId, Response, decoded
from .wire import Crossed

CANCELLED = "notifications/cancelled"
PROGRESS = "notifications/progress"


def broken_rules(log: Iterable[Crossed], *, ended: bool) -> Iterator[str]:
    """Yield a sentence for each broken rule.

    - Every request of either side gets exactly one of a result, an error, and silence; silence only if it was cancelled or the
      connection ended.
    - No message about a request follows its reply, and every reply belongs to a request.
    - Progress always increases.

    Args:
        ended: the connection was cut, so open requests may be without a reply.
    """
    log = list(log)
    for inward in (True, False):
        yield from Replies(log, inward).problems(ended=ended)
    yield from progress_problems(log)


class Replies:
    """The requests of one side, and the replies to them."""

    def __init__(self, log: list[Crossed], inward: bool) -> None:
        self._side = "client" if inward else "server"
        self._asked: dict[RequestId, str] = {}
        self._replied: set[RequestId] = set()
        self._cancelled: set[RequestId] = set()
        self._found: list[str] = []
        for crossed in log:
            if crossed.inward is inward:
                self._add_sent(crossed.message)
            else:
                self._add_received(crossed)

    def problems(self, *, ended: bool) -> Iterator[str]:
        yield from self._found
        for request_id, method in self._asked.items():
            if not ended and request_id not in self._replied | self._cancelled:
                yield f"the {self._side}'s request {request_id!r} ({method}) has had no answer and was not cancelled"

    def _add_sent(self, message: object) -> None:
        if isinstance(message, Request):
            if message.id in self._asked and message.id not in self._replied:
                self._found.append(f"the {self._side} used the id {message.id!r} twice")
            self._asked[message.id] = message.method
            self._replied.discard(message.id)
        elif isinstance(message, Notification) and message.method == CANCELLED:
            named = decoded(message.params).get("requestId")
            if isinstance(named, str | int):
                if named not in self._asked:
                    self._found.append(f"the {self._side} cancelled its request {named!r}, which it never sent")
                self._cancelled.add(named)

    def _add_received(self, crossed: Crossed) -> None:
        message = crossed.message
        if isinstance(message, Response | ErrorResponse) and message.id is not None:
            if message.id in self._replied:
                self._found.append(f"the {self._side}'s request {message.id!r} was answered twice")
            elif message.id not in self._asked:
                self._found.append(f"an answer to {message.id!r}, which the {self._side} never asked")
            self._replied.add(message.id)
        # A cancel may cross the reply on the wire, or follow it: the server withdraws its own question when the call has ended.
        elif crossed.about is not None and crossed.about in self._replied and not withdraws(message):
            self._found.append(f"{message!r} about the {self._side}'s request {crossed.about!r} came after its reply")


def withdraws(message: object) -> bool:
    return isinstance(message, Notification) and message.method == CANCELLED


def progress_problems(log: list[Crossed]) -> Iterator[str]:
    """Yield a sentence for each progress that does not increase within one request, which has one token (L-PRG-1b)."""
    last: dict[tuple[bool, RequestId | None, RequestId], float] = {}
    for inward, message, about in log:
        if not isinstance(message, Notification) or message.method != PROGRESS:
            continue
        params = decoded(message.params)
        token, value = params.get("progressToken"), params.get("progress")
        if not isinstance(token, str | int) or not isinstance(value, int | float):
            continue  # malformed: the other side rejects it
        key = (inward, about, token)
        if key in last and value <= last[key]:
            yield f"progress went from {last[key]} to {value}"
        last[key] = value
