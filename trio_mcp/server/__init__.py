"""Writing servers: `Server`, `Context`, and the types that tools, prompts and resources take and return."""

from .asking import (
    Accepted,
    Declined,
    Dismissed,
    Elicited,
    Sampled,
)
from .branching import BranchOptions
from .context import BranchGroup, Context
from .forms import Elicit, FormError, Titled
from .middleware import CallHandler, CallMiddleware, CallRequest, CallResult
from .options import OfferKeywords
from .prompts import PromptKeywords
from .provide import Provide
from .resources import ResourceKeywords
from .results import ToolResult
from .server import Lifespan, Server
from .signature import Mirrored
from .tool import Tool, ToolKeywords

__all__ = [
    "Accepted",
    "BranchGroup",
    "BranchOptions",
    "CallHandler",
    "CallMiddleware",
    "CallRequest",
    "CallResult",
    "Context",
    "Declined",
    "Dismissed",
    "Elicit",
    "Elicited",
    "FormError",
    "Lifespan",
    "Mirrored",
    "OfferKeywords",
    "PromptKeywords",
    "Provide",
    "ResourceKeywords",
    "Sampled",
    "Server",
    "Titled",
    "Tool",
    "ToolKeywords",
    "ToolResult",
]
