"""Writing servers: `Server`, `Context`, and the types that tools, prompts and resources take and return."""

from .asking import (
    Accepted,
    Declined,
    Dismissed,
    Elicited,
    Sampled,
)
from .branching import BranchOptions
from .builder import ToolBuilder, ToolLimits
from .context import BranchGroup, Context
from .forms import Elicit, FormError, Titled
from .media import Audio, File, Image
from .options import OfferKeywords
from .prompts import PromptKeywords
from .resources import ResourceKeywords
from .results import ToolResult
from .server import Server
from .signature import Mirrored
from .tool import Tool, ToolKeywords

__all__ = [
    "Accepted",
    "Audio",
    "BranchGroup",
    "BranchOptions",
    "Context",
    "Declined",
    "Dismissed",
    "Elicit",
    "Elicited",
    "File",
    "FormError",
    "Image",
    "Mirrored",
    "OfferKeywords",
    "PromptKeywords",
    "ResourceKeywords",
    "Sampled",
    "Server",
    "Titled",
    "Tool",
    "ToolBuilder",
    "ToolKeywords",
    "ToolLimits",
    "ToolResult",
]
