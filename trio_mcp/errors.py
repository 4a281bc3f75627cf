"""The exceptions of trio_mcp.

    McpError
    ├── ProtocolError            a rule of the protocol was broken; `code` is the JSON-RPC code of the response
    │   ├── LocalProtocolError       by us: a bug in the calling code
    │   └── RemoteProtocolError      by the peer
    │       ├── RequestRejected          a server answered with an HTTP status (4xx) in place of a JSON-RPC message
    │       │   └── AuthorizationError       there is no access token for a server; `kind` says why
    │       ├── InvalidRequestState      its `requestState` was not issued by this server, or not for this request
    │       ├── MalformedAnswer          a client sent no valid answer to a question of a handler
    │       └── MalformedQuestion        a server asked something that breaks a rule
    ├── PeerError                the peer answered our request with an error
    │   ├── QuestionRejected         a client answered a question of a handler with an error
    │   ├── SampleRefused            the user of this client did not let a server ask the model
    │   └── ServerBusy               a server answered HTTP 429 or 503; it has `status` and `retry_after`
    ├── AuthorizationError       there is no access token for a server; `kind` says why
    ├── ConfigurationError       a setting of this process is wrong; also a ValueError
    ├── CapabilityError          the peer did not declare a capability that this needs
    ├── LimitExceeded            a limit was reached; the message names it
    │   └── BranchLimit              of one call: too deep, too many branches or questions, out of tokens, out of time
    ├── ProviderError            a model's API gave no answer; `kind` says why
    ├── ResourceNotFound         raised by a resource: it does not exist
    ├── ToolError                raised by a tool: becomes an error *result* that the model can read
    │   ├── BranchElicitNotAllowed   a branch that may not ask the user has asked
    │   ├── BreakToolLoop            raised by a tool: ends the tool loop that runs it; in `trio_mcp.server`
    │   ├── CallLost                 its call ran or waited in a process that has ended, and must not be replayed
    │   │   └── StepMayHaveRun           the process ended while the call was in a step, which must not run twice
    │   ├── ElicitationCancelled     the user closed a question that `ctx.elicit.strict` asked
    │   ├── ElicitationDeclined      the user declined to answer it
    │   ├── ElicitationInvalid       no answer matched the schema, in any attempt
    │   ├── SampleInvalid            no answer of a model had the required form, in any attempt; in `trio_mcp.server`
    │   └── UrlElicitationRequired   raised by a tool: the user has to open a page before the tool can be called
    ├── TaskCancelled            a task of a server was cancelled, so that it has no result
    ├── ToolFailed               raised by a client that asks for it: the result of a tool is an error
    ├── RequestTimeout           no answer within the time allowed
    └── Disconnected             the connection ended while an answer was awaited
        ├── OutcomeUnknown           of a tool: it may or may not have run
        ├── SessionLost              the server no longer knows the session, and did nothing for the request
        └── Unreachable              there is no connection: the request was not sent
            └── ServerUnavailable        a server of a group is not connected

What a user chooses (accept, decline, dismiss) is a value, not an error, unless `ctx.elicit.strict` asked. Cancellation is
`trio.Cancelled` and never one of these. Channels raise Trio's own resource errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from os import urandom
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from .base.named_tuples import NamedTuple
from .base.values import printable

if TYPE_CHECKING:
    from .base.values import JsonValue

E = TypeVar("E", bound=Exception)


class McpError(Exception):
    """Base class of the exceptions that are specific to this package.

    A peer may have written a part of the text. `str` shows it without control characters; `args` has it as it was.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class ProtocolError(McpError):
    """This side or the peer broke a rule of JSON-RPC or of MCP.

    Attributes:
        code: the JSON-RPC error code of the response to the peer.
        data: the `data` member of that error, or None.
        request_id: the id of the request that broke the rule; None if it has no id or the id could not be read.
    """

    def __init__(
        self, message: str, *, code: int = -32600, data: JsonValue = None, request_id: str | int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.request_id = request_id


class LocalProtocolError(ProtocolError):
    """This side tried to break a rule; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke a rule; the message is safe to send back and says what to change."""


class RequestRejected(RemoteProtocolError):
    """The server rejected a request in a way that a repetition would not change.

    It answered with an HTTP status (4xx) and no JSON-RPC error, or closed the WebSocket because the message was too big.
    """


class InvalidRequestState(RemoteProtocolError):
    """A `requestState` was rejected. The text is always the same; `reason` is for the log only."""

    TEXT = "The requestState is invalid or has expired. Start the request again without it."

    def __init__(self, reason: str) -> None:
        super().__init__(self.TEXT, code=-32602)
        self.reason = reason


class MalformedAnswer(RemoteProtocolError):
    """The client sent something that is not an answer to a question of a tool, prompt or resource.

    A handler that does not catch it fails with this text, which says what was expected and why it was not that.
    """

    def __init__(self, expected: str, error: RemoteProtocolError) -> None:
        text = f"the client sent something malformed instead of {expected}: {error.args[0]}"
        super().__init__(text, code=error.code, data=error.data)


class MalformedQuestion(RemoteProtocolError):
    """A server asked this client something that breaks a rule, such as a conversation in which a tool use has no result.

    No handler was called. A legacy server receives the text with the code -32602; a call to a modern server raises this.
    """

    def __init__(self, method: str, problem: str) -> None:
        super().__init__(f"the server's {method} is malformed: {problem}", code=-32602)


class PeerError(McpError):
    """The peer responded to a request of this side with a JSON-RPC error.

    Attributes:
        code: its error code.
        message: its text.
        data: its `data` member, or None.
        more: members of the error that JSON-RPC does not define, including a `data` that is null; None without any.
    """

    def __init__(
        self, code: int, message: str, data: JsonValue = None, more: dict[str, JsonValue] | None = None
    ) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code
        self.message = message
        self.data = data
        self.more = more


class ServerBusy(PeerError):
    """The server answered a request with HTTP 429 or 503: too many requests, or it is not available now.

    `Client.connect(wait_if_busy=SECONDS)` waits and sends the request again.

    Attributes:
        status: the HTTP status.
        retry_after: how many seconds the server asked to wait; None if it did not say.
    """

    def __init__(self, status: int, retry_after: float | None, code: int, message: str, data: JsonValue = None) -> None:
        super().__init__(code, message, data)
        self.status = status
        self.retry_after = retry_after


class QuestionRejected(PeerError):
    """The client answered a question of a tool, prompt or resource with an error: its user refused, say.

    A handler that does not catch it fails with this text, which has the client's own. The error of another server, which a
    handler may be the client of, is a plain `PeerError`: its text is not meant for the caller.
    """

    def __init__(self, expected: str, error: PeerError) -> None:
        super().__init__(error.code, error.message, error.data)
        self.args = (f"the client returned an error instead of {expected}: {error.args[0]}",)


class SampleRefused(PeerError):
    """The user of this client did not let a server ask the model (`approve_sample`).

    A legacy server receives the code -1 with this text (L-SMP-3b); a call to a modern server raises this.
    """

    TEXT = "User rejected sampling request"

    def __init__(self) -> None:
        super().__init__(-1, self.TEXT)


class ConfigurationError(McpError, ValueError):
    """A setting of this process, such as an environment variable, is wrong; the message names it."""


class CapabilityError(McpError):
    """The peer did not declare a capability that the request needs; nothing was sent.

    Attributes:
        required: the capability object that is missing, as it would be declared, for example `{"elicitation": {}}`.
    """

    def __init__(self, message: str, required: Mapping[str, JsonValue]) -> None:
        super().__init__(message)
        self.required = dict(required)


class LimitExceeded(McpError):
    """A configured limit was reached; the message names the limit and its value."""


class BranchLimit(LimitExceeded):
    """A branch or a call reached its limit of depth, branches, questions, tokens or time.

    Attributes:
        kind: "depth" (how deep branches nest), "branches" (how many the call runs at the same time), "questions" (how many of
            the call are open), "tokens" (how many its samples use) or "time" (seconds).
        limit: the limit, in the unit of `kind`.
        used: how much was used, or would have been without the limit.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: Literal["depth", "branches", "questions", "tokens", "time"],
        limit: float,
        used: float,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.limit = limit
        self.used = used


class ResourceNotFound(McpError):
    """Raise this in a resource if `uri` does not exist; the client receives the error code of its revision (M-RES-1s)."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"Resource not found: {uri[:256]}")
        self.uri = uri


class ProviderErrorKind(StrEnum):
    """Why a provider has no answer of a model."""

    AUTHENTICATION = "authentication"
    """The API rejected the key, or the key may not use the model (401, 403)."""
    REJECTED = "rejected"
    """The API rejected the request, or the request cannot be written for it (other 4xx)."""
    RATE_LIMITED = "rate_limited"
    """There were too many requests (429), and the attempts are used up."""
    UNAVAILABLE = "unavailable"
    """The API failed (5xx), and the attempts are used up."""
    TIMEOUT = "timeout"
    """There was no answer within the provider's timeout."""
    UNREACHABLE = "unreachable"
    """There is no connection to the API."""
    MALFORMED = "malformed"
    """The API sent something that is not an answer: invalid JSON, or a stream that breaks off."""


_PUBLIC_TEXTS: Final = {
    ProviderErrorKind.AUTHENTICATION: "its API rejected the key",
    ProviderErrorKind.REJECTED: "its API rejected the request",
    ProviderErrorKind.RATE_LIMITED: "too many requests",
    ProviderErrorKind.UNAVAILABLE: "its API failed",
    ProviderErrorKind.TIMEOUT: "it took too long",
    ProviderErrorKind.UNREACHABLE: "there is no connection to its API",
    ProviderErrorKind.MALFORMED: "its answer was malformed",
}


class ProviderError(McpError):
    """The API of a model gave no answer. The text never has the key; it may have words of the API, which are for the log only.

    A peer gets `public_text` instead.

    Attributes:
        kind: why.
        status: the HTTP status of the API; None without a response.
        retry_after: how many seconds the API asked to wait; None if it did not say.
    """

    def __init__(
        self, message: str, *, kind: ProviderErrorKind, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.retry_after = retry_after

    @property
    def public_text(self) -> str:
        """What a peer may read: a fixed text for each kind, with nothing of the API in it."""
        return f"The model could not be asked: {_PUBLIC_TEXTS[self.kind]}."


class AuthorizationErrorKind(StrEnum):
    """Why there is no access token for a server."""

    LOGIN_REQUIRED = "login_required"
    """A user has to log in, and this program opens no browser."""
    DENIED = "denied"
    """The authorization server refused the login, or the user did."""
    ISSUER = "issuer"
    """The authorization server is not the one that was expected (RFC 8414, 3.3; RFC 9207, 2.4)."""
    RESOURCE = "resource"
    """The metadata of the server is about another resource (RFC 9728, 3.3)."""
    METADATA = "metadata"
    """The metadata of the server or of its authorization server is missing, malformed or too large."""
    PKCE = "pkce"
    """The authorization server does not support PKCE with S256 (RFC 7636)."""
    RESPONSE = "response"
    """The redirect after the login is not an answer to this login."""
    REGISTRATION = "registration"
    """The authorization server did not register this client."""
    TOKEN = "token"  # noqa: S105
    """The token endpoint refused the request, or its answer has no token that can be used."""
    ADDRESS = "address"
    """A URL of the server or of its authorization server may not be requested from here."""
    STORE = "store"
    """The stored tokens cannot be read or written."""
    UNAVAILABLE = "unavailable"
    """The authorization server cannot be reached, or failed (5xx)."""
    REFUSED = "refused"
    """The server refuses every token that this client gets."""


class AuthorizationError(RequestRejected):
    """There is no access token for a server. The text never has a token, a code, a secret or the query of a URL.

    Attributes:
        kind: why.
        oauth_error: the error code of the authorization server, such as "invalid_grant"; empty if it sent none.
    """

    def __init__(self, message: str, *, kind: AuthorizationErrorKind, oauth_error: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.oauth_error = oauth_error


class ToolError(McpError):
    """Raise this in a tool to return an error result with your text, which the model can read."""

    def __str__(self) -> str:
        # A model can do nothing with an empty text.
        return super().__str__() or "The call failed, without a reason."


class ToolFailed(McpError):
    """The result of a tool is an error: raised by `CallToolResult.check` and `call_tool(raise_on_error=True)`, with its text.

    It is not a `ToolError`: in a tool that calls another server, the text of that server is not meant for the caller.

    Attributes:
        structured_content: that of the result, or None.
    """

    def __init__(self, message: str, structured_content: JsonValue = None) -> None:
        super().__init__(message)
        self.structured_content = structured_content


class TaskCancelled(McpError):
    """The task `task_id` of a server was cancelled, by this client or another one or the server, and has no result."""

    def __init__(self, task_id: str, message: str | None = None) -> None:
        super().__init__(f"the task {task_id[:64]} was cancelled{f': {message[:500]}' if message else ''}")
        self.task_id = task_id


class BranchElicitNotAllowed(ToolError):
    """A branch started with `allow_elicit=False`, or a branch below it, tried to ask the user; nothing was sent."""


class CallLost(ToolError):
    """A call was running or waiting for answers in a process that has ended; the call will not continue."""


class StepMayHaveRun(CallLost):
    """A call was in a step when its process ended: whether the step was done is not known, so nothing more of the call is run.

    Attributes:
        step: the name of the step.
    """

    def __init__(self, step: str) -> None:
        super().__init__(
            f"This call was lost: the server ended while it ran, and the step {step!r} may have run. What it did before stays "
            "done. Find out what was done before you start it again."
        )
        self.step = step


class ElicitationDeclined(ToolError):
    """The user declined to answer a question that needs an answer."""


class ElicitationCancelled(ToolError):
    """The user closed a question that needs an answer, without a choice."""


class ElicitationInvalid(ToolError):
    """None of the user's answers matched the schema of the question, in any attempt."""


class UrlToOpen(NamedTuple):
    """A page that a user has to open; see `UrlElicitationRequired`."""

    message: str
    url: str
    elicitation_id: str


class UrlElicitationRequired(ToolError):
    """Raise this in a tool if the user has to open a page before the tool can do anything, such as to connect an account.

    A client of 2025-11-25 that can open pages gets the error -32042 with the page, and calls the tool again when the user has
    finished there (L-ELI-10s). Other clients get the text, which names the page. `ctx.elicit_url` asks in the middle of a call.

    Args:
        message: why the page has to be opened.
        url: the page.
        elicitation_id: identifies this visit, for `Server.complete_elicitation`; by default a random one.
        also: more pages to open.

    Attributes:
        pages: all of them.
    """

    def __init__(
        self,
        message: str,
        url: str,
        *,
        elicitation_id: str | None = None,
        also: Sequence[UrlElicitationRequired] = (),
    ) -> None:
        super().__init__(message, url)
        page = UrlToOpen(message, url, elicitation_id or urandom(16).hex())
        self.pages: tuple[UrlToOpen, ...] = (page, *(page for other in also for page in other.pages))

    def __str__(self) -> str:
        opened = "; ".join(f"{page.url} ({page.message})" for page in self.pages)
        return printable(f"The user has to open a page first, and the tool can be called again then: {opened}")


class RequestTimeout(McpError):
    """The peer did not respond within the timeout."""


class Disconnected(McpError):
    """The connection ended before the response arrived."""


class OutcomeUnknown(Disconnected):
    """The result of a tool call was lost with the connection, and the client cannot find out whether the tool ran.

    The tool was not called again, since that might repeat its effect. `__cause__` is the error that lost the result.

    Attributes:
        tool: its name.
    """

    def __init__(self, tool: str, why: str) -> None:
        super().__init__(tool, why)
        self.tool = tool

    def renamed(self, tool: str) -> OutcomeUnknown:
        """Return the same error about a tool that the caller knows by another name."""
        return OutcomeUnknown(tool, str(self.args[1]))

    def __str__(self) -> str:
        return printable(f"the tool {self.args[0]} may or may not have run: {self.args[1]}")


class Unreachable(Disconnected):
    """There is no connection to the server: the request was not sent, so it had no effect."""


class ServerUnavailable(Unreachable):
    """A server of a `ClientGroup` is not connected; nothing was sent. The group goes on trying to connect.

    Attributes:
        server: its name in the group.
    """

    def __init__(self, server: str, why: str) -> None:
        super().__init__(server, why)
        self.server = server

    def __str__(self) -> str:
        return printable(f"the server {self.args[0]!r} is unavailable: {self.args[1]}")


class SessionLost(Disconnected):
    """The server no longer knows the session and did not process the request, which may be sent again (L-HTTP-18s)."""


def without_traceback(error: E) -> E:
    """Return a copy of an error without its traceback, cause and context.

    A stored error keeps alive everything that its frames refer to. An error that is raised for several callers collects the
    frames of all of them. A function that returns while a local variable holds an error that was raised below it leaves a
    reference cycle.
    """
    # Not by calling the class: its `__init__` may take other arguments than `args` has.
    again: E = type(error).__new__(type(error), *error.args)
    again.__dict__.update(error.__dict__)
    return again
