"""Writing servers: `Server`, `Context`, and the types that tools, prompts and resources take and return."""

from .asking import (
    Accepted,
    Declined,
    Dismissed,
    Elicited,
    KeyedElicited,
    UrlAccepted,
    UrlElicited,
)
from .branching import BranchOptions
from .builder import ToolBuilder, ToolLimits
from .composing import Mountable
from .context import BranchGroup, Context
from .elicitation import Elicitation, OnDecline
from .elicits import AnyElicit, Elicit
from .exchanges import ElicitExchange
from .form_schemas import FormError
from .forms import Titled
from .media import Audio, File, Image
from .middleware import CallHandler, CallMiddleware, CallRequest, CallResult
from .options import OfferKeywords
from .prompts import PromptKeywords
from .provide import Provide
from .resources import ResourceKeywords
from .results import ToolResult
from .sampling import (
    BreakToolLoop,
    ClientTools,
    IncludeContext,
    LoopTool,
    OfferedTool,
    Prompt,
    PromptPart,
    SampleAttempt,
    Sampled,
    SampleExchange,
    SampleInvalid,
    SampleOptions,
    SamplingPreference,
    ToolChoiceMode,
    ToolClient,
    ToolLoopResult,
    ToolOutput,
)
from .server import Lifespan, Server
from .signature import Mirrored
from .tool import Tool
from .tool_options import ToolKeywords

__all__ = [
    "Accepted",
    "AnyElicit",
    "Audio",
    "BranchGroup",
    "BranchOptions",
    "BreakToolLoop",
    "CallHandler",
    "CallMiddleware",
    "CallRequest",
    "CallResult",
    "ClientTools",
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
    "IncludeContext",
    "KeyedElicited",
    "Lifespan",
    "LoopTool",
    "Mirrored",
    "Mountable",
    "OfferKeywords",
    "OfferedTool",
    "OnDecline",
    "Prompt",
    "PromptKeywords",
    "PromptPart",
    "Provide",
    "ResourceKeywords",
    "SampleAttempt",
    "SampleExchange",
    "SampleInvalid",
    "SampleOptions",
    "Sampled",
    "SamplingPreference",
    "Server",
    "Titled",
    "Tool",
    "ToolBuilder",
    "ToolChoiceMode",
    "ToolClient",
    "ToolKeywords",
    "ToolLimits",
    "ToolLoopResult",
    "ToolOutput",
    "ToolResult",
    "UrlAccepted",
    "UrlElicited",
]
