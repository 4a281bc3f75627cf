"""An actor-model runtime for MCP servers and clients on Trio.

MCP has two families of revisions, here called eras: *legacy* (2024-11-05 to 2025-11-25), where a client opens a session with
`initialize`, and *modern* (2026-07-28), where each request stands alone and a server asks its questions in results. A modern call
that asks takes several requests: each result with questions, and the request that brings the answers, is a *round*.

Docstrings cite rules of the MCP specification by id, such as L-HTTP-7s (L for legacy, M for modern; `tests/requirements/` lists
them), and proposals for the specification by number, such as SEP-1034.

The public names are defined in the packages named below and, but for the errors, are loaded when they are first used. A server
therefore loads no client, and `trio_mcp.protocol` loads no Trio.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from . import late as _late
from .errors import (
    BranchElicitNotAllowed,
    BranchLimit,
    CapabilityError,
    Disconnected,
    ElicitationCancelled,
    ElicitationDeclined,
    ElicitationInvalid,
    LimitExceeded,
    McpError,
    OutcomeUnknown,
    PeerError,
    ProtocolError,
    ProviderError,
    RequestTimeout,
    ResourceNotFound,
    SampleRefused,
    ServerUnavailable,
    SessionLost,
    TaskCancelled,
    ToolError,
    ToolFailed,
    UrlElicitationRequired,
)
from .process_memory import no_collection as _no_collection

if TYPE_CHECKING:
    from .client import (
        Change,
        Client,
        ClientTask,
        ConnectKeywords,
        ElicitRouter,
        ResponseCache,
        accept,
        accept_defaults,
        decline,
        dismiss,
    )
    from .client.agent import AgentResult, run_agent
    from .client.agent_calls import AgentCall
    from .client.group import ClientGroup
    from .client.group_member import ServerState, ServerStatus
    from .client.group_servers import GroupServer
    from .client.model_tools import ModelTools, list_model_tools
    from .http import HttpLimits, HttpOptions, HttpRequest, HttpResponse, Tls
    from .log_setup import configure_logging
    from .relay import proxy
    from .runtime import CancelReason
    from .sampling import SamplingProvider
    from .server import (
        Accepted,
        Audio,
        BreakToolLoop,
        CallHandler,
        CallMiddleware,
        CallRequest,
        CallResult,
        ClientTools,
        Context,
        Declined,
        Dismissed,
        Elicit,
        Elicited,
        ElicitExchange,
        File,
        Image,
        Mirrored,
        Provide,
        Sampled,
        SampleExchange,
        SampleInvalid,
        Server,
        Titled,
        ToolLoopResult,
        ToolResult,
        ToolSearch,
        UrlAccepted,
    )
    from .server.builder import tool
    from .session import Caller, ChannelServer, MessageFacts, MessageMiddleware, ServiceOptions, TaskOptions

__all__ = [
    "Accepted",
    "AgentCall",
    "AgentResult",
    "Audio",
    "BranchElicitNotAllowed",
    "BranchLimit",
    "BreakToolLoop",
    "CallHandler",
    "CallMiddleware",
    "CallRequest",
    "CallResult",
    "Caller",
    "CancelReason",
    "CapabilityError",
    "Change",
    "ChannelServer",
    "Client",
    "ClientGroup",
    "ClientTask",
    "ClientTools",
    "ConnectKeywords",
    "Context",
    "Declined",
    "Disconnected",
    "Dismissed",
    "Elicit",
    "ElicitExchange",
    "ElicitRouter",
    "ElicitationCancelled",
    "ElicitationDeclined",
    "ElicitationInvalid",
    "Elicited",
    "File",
    "GroupServer",
    "HttpLimits",
    "HttpOptions",
    "HttpRequest",
    "HttpResponse",
    "Image",
    "LimitExceeded",
    "McpError",
    "MessageFacts",
    "MessageMiddleware",
    "Mirrored",
    "ModelTools",
    "OutcomeUnknown",
    "PeerError",
    "ProtocolError",
    "Provide",
    "ProviderError",
    "RequestTimeout",
    "ResourceNotFound",
    "ResponseCache",
    "SampleExchange",
    "SampleInvalid",
    "SampleRefused",
    "Sampled",
    "SamplingProvider",
    "Server",
    "ServerState",
    "ServerStatus",
    "ServerUnavailable",
    "ServiceOptions",
    "SessionLost",
    "TaskCancelled",
    "TaskOptions",
    "Titled",
    "Tls",
    "ToolError",
    "ToolFailed",
    "ToolLoopResult",
    "ToolResult",
    "ToolSearch",
    "UrlAccepted",
    "UrlElicitationRequired",
    "accept",
    "accept_defaults",
    "configure_logging",
    "decline",
    "dismiss",
    "list_model_tools",
    "proxy",
    "run_agent",
    "tool",
]

# Every other name of `__all__` that is loaded late is in `server`. Errors are small, and loaded with this package.
_PACKAGES = {
    # Not in `client`, so that a client which runs no agent does not load it.
    "client.agent": ("AgentResult", "run_agent"),
    "client.agent_calls": ("AgentCall",),
    # Nor does one of a single server load the group.
    "client.group": ("ClientGroup",),
    "client.group_member": ("ServerState", "ServerStatus"),
    "client.group_servers": ("GroupServer",),
    "client.model_tools": ("ModelTools", "list_model_tools"),
    "client": (
        "Change",
        "Client",
        "ClientTask",
        "ConnectKeywords",
        "ElicitRouter",
        "ResponseCache",
        "accept",
        "accept_defaults",
        "decline",
        "dismiss",
    ),
    "http": ("HttpLimits", "HttpOptions", "HttpRequest", "HttpResponse", "Tls"),
    "log_setup": ("configure_logging",),
    "relay": ("proxy",),
    "runtime": ("CancelReason",),
    "sampling": ("SamplingProvider",),
    # Not in `server`, where the module `tool` has the name.
    "server.builder": ("tool",),
    "session": ("Caller", "ChannelServer", "MessageFacts", "MessageMiddleware", "ServiceOptions", "TaskOptions"),
}
_PACKAGE_OF = {name: package for package, names in _PACKAGES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise _missing(name, _late.importing_module())
    package = _PACKAGE_OF.get(name, "server")
    with _no_collection():
        value: object = getattr(import_module(f".{package}", __name__), name)
    globals()[name] = value
    return value


def _missing(name: str, importer: str | None) -> AttributeError | ImportError:
    """Return the error for a name that this package does not have.

    Args:
        importer: the module that imports it; None if the name is read as an attribute.
    """
    # The modules of both packages import others of this one so: a server need not load the hints for that.
    ours = importer is not None and importer.startswith(__name__)
    hint: str = "" if ours or name.startswith("_") else import_module(f"{__name__}.import_hints").hint(name)
    if hint and importer is not None:
        return ImportError(f"cannot import name {name!r} from {__name__!r}: {hint}", name=__name__, path=__file__)
    return AttributeError(f"module {__name__!r} has no attribute {name!r}{': ' if hint else ''}{hint}")


def __dir__() -> list[str]:
    # Without the names of the code above, such as `import_module`: this is what a user sees who explores the package.
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
