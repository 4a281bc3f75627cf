"""Writing servers: `Server`, `Context`, and the types that tools, prompts and resources take and return."""

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
    from . import (
        asyncio_bodies as asyncio_bodies,
        call_log as call_log,
        concurrency as concurrency,
        data as data,
        elicit as elicit,
        http_settings as http_settings,
        large_results as large_results,
        lifespan as lifespan,
        middleware as middleware,
        mounts as mounts,
        nested as nested,
        other_names as other_names,
        running as running,
        sampling as sampling,
        tools as tools,
        values as values,
    )
    from .branching import BranchOptions as BranchOptions
    from .composing import Mountable as Mountable
    from .context import BranchGroup as BranchGroup, Context as Context
    from .data.prompts import PromptKeywords as PromptKeywords
    from .data.resources import ResourceKeywords as ResourceKeywords
    from .elicit.elicitation import Elicitation as Elicitation, OnDecline as OnDecline
    from .elicit.elicits import AnyElicit as AnyElicit, Elicit as Elicit
    from .elicit.exchanges import (
        Accepted as Accepted,
        Declined as Declined,
        Dismissed as Dismissed,
        Elicited as Elicited,
        ElicitExchange as ElicitExchange,
        KeyedElicited as KeyedElicited,
        UrlAccepted as UrlAccepted,
        UrlElicited as UrlElicited,
    )
    from .elicit.forms import FormError as FormError, Titled as Titled
    from .middleware import (
        CallHandler as CallHandler,
        CallMiddleware as CallMiddleware,
        CallRequest as CallRequest,
        CallResult as CallResult,
    )
    from .options import OfferKeywords as OfferKeywords
    from .sampling import (
        BreakToolLoop as BreakToolLoop,
        ClientTools as ClientTools,
        IncludeContext as IncludeContext,
        LoopTool as LoopTool,
        OfferedTool as OfferedTool,
        Prompt as Prompt,
        PromptPart as PromptPart,
        SampleAttempt as SampleAttempt,
        Sampled as Sampled,
        SampleExchange as SampleExchange,
        SampleInvalid as SampleInvalid,
        SampleOptions as SampleOptions,
        SamplingPreference as SamplingPreference,
        ToolChoiceMode as ToolChoiceMode,
        ToolClient as ToolClient,
        ToolLoopResult as ToolLoopResult,
        ToolOutput as ToolOutput,
    )
    from .server import Lifespan as Lifespan, Server as Server
    from .sync_context import SyncContext as SyncContext
    from .tool_options import ToolKeywords as ToolKeywords
    from .tools.builder import ToolBuilder as ToolBuilder, ToolLimits as ToolLimits
    from .tools.search import ToolSearch as ToolSearch
    from .tools.tool import Tool as Tool
    from .values.media import Audio as Audio, File as File, Image as Image
    from .values.provide import Provide as Provide
    from .values.results import ToolResult as ToolResult
    from .values.signature import Mirrored as Mirrored
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "asyncio_bodies": "",
            "branching": "BranchOptions",
            "call_log": "",
            "composing": "Mountable",
            "concurrency": "",
            "context": "BranchGroup Context",
            "data": "",
            "data.prompts": "PromptKeywords",
            "data.resources": "ResourceKeywords",
            "elicit": "",
            "elicit.elicitation": "Elicitation OnDecline",
            "elicit.elicits": "AnyElicit Elicit",
            "elicit.exchanges": (
                "Accepted Declined Dismissed ElicitExchange Elicited KeyedElicited UrlAccepted UrlElicited"
            ),
            "elicit.forms": "FormError Titled",
            "http_settings": "",
            "large_results": "",
            "middleware": "CallHandler CallMiddleware CallRequest CallResult",
            "mounts": "",
            "nested": "",
            "lifespan": "",
            "options": "OfferKeywords",
            "other_names": "",
            "running": "",
            "sampling": (
                "BreakToolLoop ClientTools IncludeContext LoopTool OfferedTool Prompt PromptPart SampleAttempt "
                "SampleExchange SampleInvalid SampleOptions Sampled SamplingPreference ToolChoiceMode ToolClient "
                "ToolLoopResult ToolOutput"
            ),
            "server": "Lifespan Server",
            "sync_context": "SyncContext",
            "tool_options": "ToolKeywords",
            "tools": "",
            "tools.builder": "ToolBuilder ToolLimits",
            "tools.search": "ToolSearch",
            "tools.tool": "Tool",
            "values": "",
            "values.media": "Audio File Image",
            "values.provide": "Provide",
            "values.results": "ToolResult",
            "values.signature": "Mirrored",
        },
        in_calls="concurrency elicit large_results nested sampling values",
    )
