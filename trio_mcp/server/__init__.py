"""Writing servers: `Server`, `Context`, and what tools, prompts and resources give and get."""

from .context import Accepted, BranchGroup, Context, Declined, Dismissed, Elicited, Sampled
from .forms import Elicit, FormError, Titled
from .results import ToolResult
from .server import Server
from .signature import Mirrored
from .tool import Tool

__all__ = [
    "Accepted",
    "BranchGroup",
    "Context",
    "Declined",
    "Dismissed",
    "Elicit",
    "Elicited",
    "FormError",
    "Mirrored",
    "Sampled",
    "Server",
    "Titled",
    "Tool",
    "ToolResult",
]
