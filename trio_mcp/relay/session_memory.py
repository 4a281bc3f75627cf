"""What of a legacy session is said again when it is opened a second time, and which of its requests may be sent again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ..base.named_tuples import NamedTuple
from ..errors import RemoteProtocolError
from ..protocol.jsonrpc import (
    Batch,
    Encoded,
    ErrorResponse,
    Notification,
    Request,
    RequestId,
    Response,
    decoded,
    is_request_id,
)
from ..protocol.revisions import REVISIONS
from ..session import Envelope, Received, Sent
from ..types import JsonObject, JsonValue
from .rounds import as_object
from .streams import MAX_TOOLS

CANCELLED: Final = "notifications/cancelled"
INITIALIZED: Final = "notifications/initialized"
MAX_URIS: Final = 1000
"""Resources that are subscribed to again."""

REPEATABLE: Final = frozenset(
    {
        "completion/complete",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "tools/list",
    }
)
"""Requests that do no more when they are processed twice (RFC 9110, 9.2.2), besides calls of tools that are listed so."""

CHANGES: Final = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}


class SessionMemory:
    """One session, as its host has set it up.

    Attributes:
        handshake: the `initialize` that the server has accepted; None while there is no session.
        result: the server's first answer to it, which is what the host knows.
    """

    def __init__(self) -> None:
        self.handshake: Request | None = None
        self.result: JsonObject = {}
        self._initialized: Notification | None = None
        self._level: JsonObject | None = None
        self._uris: dict[str, None] = {}
        self._harmless: set[str] = set()

    @property
    def version(self) -> JsonValue:
        """The revision that both sides agreed on."""
        return self.result.get("protocolVersion")

    def note(self, message: Request | Notification) -> None:
        """Remember what a message of the host sets."""
        if message.method == INITIALIZED and isinstance(message, Notification):
            self._initialized = message
        elif message.method == "logging/setLevel":
            self._level = decoded(message.params)
        elif message.method == "resources/subscribe" and len(self._uris) < MAX_URIS:
            if isinstance(uri := decoded(message.params).get("uri"), str):
                self._uris[uri] = None
        elif message.method == "resources/unsubscribe":
            uri = decoded(message.params).get("uri")
            if isinstance(uri, str):
                self._uris.pop(uri, None)

    def learn_tools(self, result: JsonObject | Encoded) -> None:
        """Remember which tools of a list do no more when they run twice."""
        tools = decoded(result).get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                hints = as_object(tool.get("annotations"))
                self._harmless.discard(name)
                is_harmless = hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True
                if is_harmless and len(self._harmless) < MAX_TOOLS:
                    self._harmless.add(name)

    def members_of(self, batch: Batch) -> Sequence[Received] | None:
        """Return the messages of an array, if the revision has arrays (2025-03-26) and it is a valid one; else None."""
        version = self.version
        if not isinstance(version, str) or version not in REVISIONS or not REVISIONS[version].batches:
            return None
        try:
            return batch.messages()
        except RemoteProtocolError:
            return None  # the proxy answers it

    def is_repeatable(self, request: Request) -> bool:
        """Return whether a request may be sent again although the server may have processed it."""
        if request.method != "tools/call":
            return request.method in REPEATABLE
        name = decoded(request.params).get("name")
        return isinstance(name, str) and name in self._harmless

    def messages(self) -> Iterator[tuple[str, JsonObject] | Notification]:
        """Yield what follows a handshake: the notification, and the requests by method and params."""
        if self._initialized is not None:
            yield self._initialized
        if self._level is not None:
            yield "logging/setLevel", self._level
        for uri in self._uris:
            params: JsonObject = {"uri": uri}
            yield "resources/subscribe", params

    def changes(self) -> Iterator[Notification]:
        """Yield the notifications that the host may have missed, of the kinds that the server's capabilities announce."""
        capabilities = as_object(self.result.get("capabilities"))
        for kind, method in CHANGES.items():
            if as_object(capabilities.get(kind)).get("listChanged") is True:
                yield Notification(method)
        for uri in self._uris:
            yield Notification("notifications/resources/updated", {"uri": uri})


def id_in(value: JsonValue) -> RequestId | None:
    """Return an id that a message names; None if it is malformed."""
    return value if is_request_id(value) else None


def accepted(reply: Response) -> JsonObject:
    """Return the result of a handshake."""
    return as_object(decoded(reply.result))


# The ids of a server's questions, of a session that may be opened again.
#
# A new session may use the ids of the old one, whose questions the host may still answer. So those of the old one are
# cancelled at
# the host, and those of later ones get ids of the proxy.


class QuestionIds:
    """The questions that the host has not answered.

    Args:
        new_id: returns an id that no message of the host or the server has.
    """

    def __init__(self, new_id: Callable[[], RequestId]) -> None:
        self._new_id = new_id
        self._at_server: dict[RequestId, RequestId] = {}
        """Their ids at the server, by those at the host."""
        self._replaces = False

    def end_session(self) -> list[Notification]:
        """Forget the questions of this session, and return what tells the host so; those to come get new ids."""
        self._replaces = True
        asked, self._at_server = self._at_server, {}
        reason = "the server has lost the session"
        return [Notification(CANCELLED, {"requestId": request_id, "reason": reason}) for request_id in asked]

    def ask(self, question: Request, envelope: Envelope[Received]) -> Envelope[Received]:
        """Return a question of the server as the host gets it."""
        if not self._replaces:
            self._at_server[question.id] = question.id
            return envelope
        request_id = self._new_id()
        self._at_server[request_id] = question.id
        return envelope._replace(message=question._replace(id=request_id))

    def withdraw(self, notice: Notification, envelope: Envelope[Received]) -> Envelope[Received]:
        """Return the server's cancellation of a question as the host gets it."""
        params = decoded(notice.params)
        named = id_in(params.get("requestId"))
        request_id = next((host_id for host_id, own in self._at_server.items() if own == named), None)
        if request_id is None:
            return envelope
        del self._at_server[request_id]
        if request_id == named:
            return envelope
        return envelope._replace(message=notice._replace(params={**params, "requestId": request_id}))

    def answer(self, value: Envelope[Sent], answer: Response | ErrorResponse) -> Envelope[Sent] | None:
        """Return the answer to a question of this session as the server gets it; None if it is to one of an earlier session."""
        if answer.id is None:
            return value
        request_id = self._at_server.pop(answer.id, None)
        if request_id is None:
            # In the first session it is for the server to ignore.
            return None if self._replaces else value
        return value if request_id == answer.id else value._replace(message=answer._replace(id=request_id))


# The requests of a host that have no reply yet, in a session that may be opened again.

MAX_WAITING: Final = 256
"""Requests that wait for a session."""


class SentRequest(NamedTuple):
    """A request that is at the server.

    Attributes:
        session: the number of the session that it was sent in.
        is_repeat: it has waited for a session, and does so no second time.
    """

    envelope: Envelope[Sent]
    session: int
    is_repeat: bool


class SentRequests:
    """Those that are at the server, and those that wait for a session.

    Args:
        memory: knows which requests may be sent again.
        fail: answers a request with an error, with this text.
        gone: returns the error for requests that the server does not answer any more, for a reason.
    """

    def __init__(
        self, memory: SessionMemory, fail: Callable[[RequestId, str], None], gone: Callable[[str], str]
    ) -> None:
        self._memory, self._fail, self._gone = memory, fail, gone
        self._sent: dict[RequestId, SentRequest] = {}
        self._waiting: dict[RequestId, Envelope[Sent]] = {}

    @property
    def are_waiting(self) -> bool:
        """Whether some wait."""
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether no more may wait."""
        return len(self._waiting) >= MAX_WAITING

    def add_sent(self, request_id: RequestId, envelope: Envelope[Sent], session: int) -> None:
        """Note a request that is sent now."""
        self._sent[request_id] = SentRequest(envelope, session, is_repeat=False)

    def add_waiting(self, request_id: RequestId, envelope: Envelope[Sent]) -> None:
        """Let a request wait for a session."""
        self._waiting[request_id] = envelope

    def take(self, request_id: RequestId) -> SentRequest | None:
        """Remove a request that is at the server, and return it; None if it is not."""
        return self._sent.pop(request_id, None)

    def cancel(self, request_id: RequestId) -> None:
        """Forget a request that the host no longer wants."""
        self._sent.pop(request_id, None)
        self._waiting.pop(request_id, None)

    def take_waiting(self, session: int) -> list[Envelope[Sent]]:
        """Return the requests that wait; they are sent now, in this session."""
        waiting, self._waiting = self._waiting, {}
        for request_id, envelope in waiting.items():
            self._sent[request_id] = SentRequest(envelope, session, is_repeat=True)
        return list(waiting.values())

    def fail_waiting(self, why: str) -> None:
        """Answer what waits with an error."""
        waiting, self._waiting = self._waiting, {}
        for request_id in waiting:
            self._fail(request_id, why)

    def lose_all(self, why: str) -> None:
        """Let what is at the server wait for the next session if it may be sent again, and answer the rest with an error."""
        sent, self._sent = self._sent, {}
        for request_id, lost in sent.items():
            self.lose(request_id, lost, why)

    def lose(self, request_id: RequestId, lost: SentRequest, why: str, *, was_ignored: bool = False) -> None:
        """Do the same for one request.

        Args:
            was_ignored: the server did nothing for it.
        """
        request = lost.envelope.message
        # For type checkers: nothing else is added.
        assert isinstance(request, Request)
        if not lost.is_repeat and (was_ignored or self._memory.is_repeatable(request)):
            self._waiting[request_id] = lost.envelope
            return
        unknown = "" if was_ignored or request.method != "tools/call" else ". The tool may or may not have run"
        self._fail(request_id, f"{self._gone(why)}{unknown}")
