"""Writing servers: `Server`, `Context`, and what tools, prompts and resources give and get."""

from .asking import Accepted, Declined, Dismissed, Elicited, Sampled
from .branching import BranchGroup, BranchOptions
from .context import Context
from .forms import Elicit, FormError, Titled
from .prompts import PromptKeywords
from .resources import ResourceKeywords
from .results import ToolResult
from .server import Server
from .signature import Mirrored
from .tool import Tool, ToolKeywords

__all__ = [
    "Accepted",
    "BranchGroup",
    "BranchOptions",
    "Context",
    "Declined",
    "Dismissed",
    "Elicit",
    "Elicited",
    "FormError",
    "Mirrored",
    "PromptKeywords",
    "ResourceKeywords",
    "Sampled",
    "Server",
    "Titled",
    "Tool",
    "ToolKeywords",
    "ToolResult",
]
