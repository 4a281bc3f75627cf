"""Writing servers: `Server`, `Context`, and what tools give and get."""

from .context import Accepted, BranchGroup, Context, Declined, Dismissed, Elicited, Sampled
from .forms import FormError
from .results import ToolResult
from .server import Server
from .tool import Tool

__all__ = [
    "Accepted",
    "BranchGroup",
    "Context",
    "Declined",
    "Dismissed",
    "Elicited",
    "FormError",
    "Sampled",
    "Server",
    "Tool",
    "ToolResult",
]
