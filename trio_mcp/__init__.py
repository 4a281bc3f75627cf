"""An actor-model runtime for MCP servers and clients on Trio."""

from .client import Client, accept, decline, dismiss
from .errors import (
    CapabilityError,
    Disconnected,
    ElicitationInvalid,
    LimitExceeded,
    McpError,
    PeerError,
    ProtocolError,
    RequestTimeout,
    ToolError,
)
from .runtime import CancelReason
from .server import Accepted, Context, Declined, Dismissed, Elicited, Sampled, Server, ToolResult
from .session import ServiceOptions

__all__ = [
    "Accepted",
    "CancelReason",
    "CapabilityError",
    "Client",
    "Context",
    "Declined",
    "Disconnected",
    "Dismissed",
    "ElicitationInvalid",
    "Elicited",
    "LimitExceeded",
    "McpError",
    "PeerError",
    "ProtocolError",
    "RequestTimeout",
    "Sampled",
    "Server",
    "ServiceOptions",
    "ToolError",
    "ToolResult",
    "accept",
    "decline",
    "dismiss",
]
