"""Writing servers: `Server`, `Context`, and the types that tools, prompts and resources take and return."""

from typing import TYPE_CHECKING

from .. import late

if TYPE_CHECKING:
    from . import builder as builder
    from . import call_log as call_log
    from . import completion as completion
    from . import concurrency as concurrency
    from . import elicitation as elicitation
    from . import elicits as elicits
    from . import form_schemas as form_schemas
    from . import handoff as handoff
    from . import http_settings as http_settings
    from . import large_results as large_results
    from . import meant_names as meant_names
    from . import media as media
    from . import middleware as middleware
    from . import mounts as mounts
    from . import nested as nested
    from . import one_line as one_line
    from . import other_names as other_names
    from . import own_tools as own_tools
    from . import parameters_model as parameters_model
    from . import preloading as preloading
    from . import prompts as prompts
    from . import resources as resources
    from . import running as running
    from . import sampling as sampling
    from . import step_results as step_results
    from . import tool_search as tool_search
    from . import url_elicitation as url_elicitation
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
    from .tool_search import ToolSearch
else:
    __getattr__, __dir__ = late.exports(
        __name__,
        {
            "asking": "Accepted Declined Dismissed Elicited KeyedElicited UrlAccepted UrlElicited",
            "branching": "BranchOptions",
            "builder": "ToolBuilder ToolLimits",
            "call_log": "",
            "completion": "",
            "composing": "Mountable",
            "concurrency": "",
            "context": "BranchGroup Context",
            "elicitation": "Elicitation OnDecline",
            "elicits": "AnyElicit Elicit",
            "exchanges": "ElicitExchange",
            "form_schemas": "FormError",
            "forms": "Titled",
            "handoff": "",
            "http_settings": "",
            "large_results": "",
            "meant_names": "",
            "media": "Audio File Image",
            "middleware": "CallHandler CallMiddleware CallRequest CallResult",
            "mounts": "",
            "nested": "",
            "one_line": "",
            "options": "OfferKeywords",
            "other_names": "",
            "own_tools": "",
            "parameters_model": "",
            "preloading": "",
            "prompts": "PromptKeywords",
            "provide": "Provide",
            "resources": "ResourceKeywords",
            "running": "",
            "results": "ToolResult",
            "sampling": (
                "BreakToolLoop ClientTools IncludeContext LoopTool OfferedTool Prompt PromptPart SampleAttempt "
                "Sampled SampleExchange SampleInvalid SampleOptions SamplingPreference ToolChoiceMode ToolClient "
                "ToolLoopResult ToolOutput"
            ),
            "server": "Lifespan Server",
            "signature": "Mirrored",
            "step_results": "",
            "tool": "Tool",
            "tool_options": "ToolKeywords",
            "tool_search": "ToolSearch",
            "url_elicitation": "",
        },
    )

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
    "ToolSearch",
    "UrlAccepted",
    "UrlElicited",
]
