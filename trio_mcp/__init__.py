"""An actor-model runtime for MCP servers and clients on Trio.

MCP has two families of revisions, here called eras: *legacy* (2024-11-05 to 2025-11-25), where a client opens a session with
`initialize`, and *modern* (2026-07-28), where each request stands alone and a server asks its questions in results. A modern call
that asks takes several requests: each result with questions, and the request that brings the answers, is a *round*.

Docstrings cite rules of the MCP specification by id, such as L-HTTP-7s (L for legacy, M for modern; `tests/requirements/` lists
them), and proposals for the specification by number, such as SEP-1034.

The public names are defined in the packages named below, and loaded when they are first used. A server
therefore loads no client, and `trio_mcp.protocol` loads no Trio.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .base import late as _late
from .base.late import no_collection as _no_collection

if TYPE_CHECKING:
    from .base.logs import configure_logging as configure_logging
    from .client import (
        Client as Client,
        ClientTask as ClientTask,
        ElicitRouter as ElicitRouter,
        accept as accept,
        accept_defaults as accept_defaults,
        decline as decline,
        dismiss as dismiss,
    )
    from .client.sync_client import SyncClient as SyncClient
    from .compose.agent.agent import run_agent as run_agent
    from .compose.agent.model_tools import list_model_tools as list_model_tools
    from .compose.connection import ServerState as ServerState, ServerStatus as ServerStatus
    from .compose.group import ClientGroup as ClientGroup
    from .compose.servers import GroupServer as GroupServer
    from .errors import (
        Disconnected as Disconnected,
        McpError as McpError,
        PeerError as PeerError,
        RequestTimeout as RequestTimeout,
        ResourceNotFound as ResourceNotFound,
        ToolError as ToolError,
        ToolFailed as ToolFailed,
        UrlElicitationRequired as UrlElicitationRequired,
    )
    from .http import (
        HttpOptions as HttpOptions,
        HttpRequest as HttpRequest,
        HttpResponse as HttpResponse,
    )
    from .relay import Backfill as Backfill, RelayServer as RelayServer, proxy as proxy
    from .runtime import CancelReason as CancelReason
    from .sampling import SamplingProvider as SamplingProvider
    from .server import (
        Accepted as Accepted,
        Audio as Audio,
        CallHandler as CallHandler,
        CallMiddleware as CallMiddleware,
        CallRequest as CallRequest,
        CallResult as CallResult,
        Context as Context,
        Declined as Declined,
        Dismissed as Dismissed,
        Elicit as Elicit,
        Elicited as Elicited,
        File as File,
        Image as Image,
        Mirrored as Mirrored,
        Provide as Provide,
        SampleInvalid as SampleInvalid,
        Server as Server,
        SyncContext as SyncContext,
        Titled as Titled,
        ToolResult as ToolResult,
        ToolSearch as ToolSearch,
    )
    from .server.tools.builder import tool as tool
    from .session import (
        Caller as Caller,
        ServiceOptions as ServiceOptions,
        TaskOptions as TaskOptions,
    )
else:
    _load, _, __all__ = _late.exports(
        __name__,
        {
            "base.logs": "configure_logging",
            "client": "Client ClientTask ElicitRouter accept accept_defaults decline dismiss",
            # Not in `client`, so that a client which runs no agent does not load it.
            "compose.agent.agent": "run_agent",
            "compose.agent.model_tools": "list_model_tools",
            # Nor does one of a single server load the group.
            "compose.group": "ClientGroup",
            "compose.connection": "ServerState ServerStatus",
            "compose.servers": "GroupServer",
            # Nor one of async code the other.
            "client.sync_client": "SyncClient",
            "errors": (
                "Disconnected McpError PeerError RequestTimeout ResourceNotFound ToolError ToolFailed "
                "UrlElicitationRequired"
            ),
            "http": "HttpOptions HttpRequest HttpResponse",
            "relay": "Backfill RelayServer proxy",
            "runtime": "CancelReason",
            "sampling": "SamplingProvider",
            "server": (
                "Accepted Audio CallHandler CallMiddleware CallRequest CallResult Context Declined Dismissed Elicit "
                "Elicited File Image Mirrored Provide SampleInvalid Server SyncContext Titled ToolResult "
                "ToolSearch"
            ),
            # Not in `server`, where the package `tools` has the module.
            "server.tools.builder": "tool",
            "session": "Caller ServiceOptions TaskOptions",
        },
    )

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise _missing(name, _late.importing_module())
        with _no_collection():
            return _load(name)

    def __dir__() -> list[str]:
        # Without the names of the code here, such as `import_module`: this is what a user sees who explores the package.
        return [*__all__, *(name for name in globals() if name.startswith("__"))]


def _missing_module(name: str) -> str:
    """Return what to write instead of a module that this package does not have; empty if nothing is known."""
    hint: str = import_module(f"{__name__}.import_hints").MODULES.get(name, "")
    return hint


_late.hint_at_modules(__name__, _missing_module)


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
