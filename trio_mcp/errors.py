"""The exceptions of trio_mcp.

    McpError
    ├── ProtocolError            a rule of the protocol was broken; `code` is the JSON-RPC code to answer with
    │   ├── LocalProtocolError       by us: a bug in the calling code
    │   └── RemoteProtocolError      by the peer
    │       └── InvalidRequestState      its `requestState` was not minted here, or not for this request
    ├── PeerError                the peer answered our request with an error
    ├── ConfigurationError       a setting of this process is wrong; also a ValueError
    ├── CapabilityError          the peer did not declare a capability that this needs
    ├── LimitExceeded            a limit was reached; the message names it
    │   └── BranchLimit              by a branch: too deep, too many, out of tokens, out of time
    ├── ResourceNotFound         raised by a resource: it does not exist
    ├── ToolError                raised by a tool: becomes an error *result* that the model can read
    │   ├── BranchElicitNotAllowed   a branch that may not ask the user has asked
    │   ├── CallLost                 its parked call is gone, and must not be replayed
    │   └── ElicitationInvalid       the answer still broke its schema after every further attempt
    ├── RequestTimeout           no answer within the time allowed
    └── Disconnected             the connection ended while an answer was awaited
        └── SessionLost              the server no longer knows the session, and did nothing for the request

What a user chooses (accept, decline, dismiss) is a value, not an error, unless the author asks for errors. Cancellation is
`trio.Cancelled` and never one of these. Channels raise Trio's own resource errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

from .json_value import JsonValue

E = TypeVar("E", bound=Exception)


class McpError(Exception):
    """The base of all errors that this package raises on purpose."""


class ProtocolError(McpError):
    """A rule of JSON-RPC or of MCP was broken.

    Attributes:
        code: the JSON-RPC error code that tells the peer about it.
        data: the `data` member of that error, or None.
        request_id: the id of the request it is about, or None when there is none or it could not be read.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = -32600,
        data: JsonValue = None,
        request_id: str | int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.request_id = request_id


class LocalProtocolError(ProtocolError):
    """This side tried to break a rule; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke a rule; the message is safe to send back and says what to change."""


class InvalidRequestState(RemoteProtocolError):
    """A `requestState` was rejected. The text is always the same; `reason` is for the log only (reliability S-72)."""

    TEXT = "The requestState is invalid or has expired. Start the request again without it."

    def __init__(self, reason: str) -> None:
        super().__init__(self.TEXT, code=-32602)
        self.reason = reason


class PeerError(McpError):
    """The peer answered our request with a JSON-RPC error.

    Attributes:
        code: its error code.
        message: its text.
        data: its `data` member, or None.
    """

    def __init__(self, code: int, message: str, data: JsonValue = None) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code
        self.message = message
        self.data = data


class ConfigurationError(McpError, ValueError):
    """A setting of this process, such as an environment variable, is wrong; the message names it."""


class CapabilityError(McpError):
    """The peer did not declare a capability that this step needs; nothing was sent.

    Attributes:
        required: the capability object that is missing, as it would be declared, for example `{"elicitation": {}}`.
    """

    def __init__(self, message: str, required: Mapping[str, JsonValue]) -> None:
        super().__init__(message)
        self.required = dict(required)


class LimitExceeded(McpError):
    """A configured limit was reached; the message names the limit and its value."""


class BranchLimit(LimitExceeded):
    """A branch, or a whole call, reached a limit of branches.

    Attributes:
        kind: "depth" (how deep branches nest), "branches" (how many run at once), "tokens" (what its samples may use) or
            "time" (seconds).
        limit: the limit that was reached, in units of its kind.
        used: what was used of it, or would have been.
    """

    def __init__(
        self, message: str, *, kind: Literal["depth", "branches", "tokens", "time"], limit: float, used: float
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.limit = limit
        self.used = used


class ResourceNotFound(McpError):
    """Raise it in a resource if nothing exists under `uri`; each revision has its own code for that (M-RES-1s)."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"Resource not found: {uri[:256]}")
        self.uri = uri


class ToolError(McpError):
    """Raise it in a tool to answer with an error result whose text the model can read."""


class BranchElicitNotAllowed(ToolError):
    """A branch that was started with `allow_elicit=False`, or a branch of it, asked the user; nothing was sent."""


class CallLost(ToolError):
    """A call was waiting for answers in a process that has ended; the call will not continue."""


class ElicitationInvalid(ToolError):
    """The answer broke the schema of the question in every attempt."""


class RequestTimeout(McpError):
    """The peer did not answer a request within the time allowed (seconds)."""


class Disconnected(McpError):
    """The connection ended before the answer came."""


class SessionLost(Disconnected):
    """The server no longer knows the session (L-HTTP-18s). It did nothing for the request, which may be sent again."""


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
