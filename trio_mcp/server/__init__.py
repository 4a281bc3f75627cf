"""Writing servers: `Server`, `Context`, and the types that tools, prompts and resources take and return."""

from .asking import (
    Accepted,
    Declined,
    Dismissed,
    Elicited,
    KeyedElicited,
    Sampled,
    UrlAccepted,
    UrlElicited,
)
from .branching import BranchOptions
from .builder import ToolBuilder, ToolLimits
from .context import BranchGroup, Context
from .elicitation import Elicitation, OnDecline
from .elicits import AnyElicit, Elicit
from .exchanges import ElicitExchange
from .form_schemas import FormError
from .forms import Titled
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
    "AnyElicit",
    "Audio",
    "BranchGroup",
    "BranchOptions",
    "Context",
    "Declined",
    "Dismissed",
    "Elicit",
    "ElicitExchange",
    "Elicitation",
    "Elicited",
    "File",
    "FormError",
    "Image",
    "KeyedElicited",
    "Mirrored",
    "OfferKeywords",
    "OnDecline",
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
    "UrlAccepted",
    "UrlElicited",
]
