"""Asking a model: what `ctx.sample` sends, how the answer is read, and the conversation that it belongs to."""

from typing import TYPE_CHECKING

from ...base import late

if TYPE_CHECKING:
    from . import (
        answers as answers,
        attempts as attempts,
        loop as loop,
        loop_tools as loop_tools,
        prompts as prompts,
        request as request,
        structured as structured,
    )
    from .answers import (
        SampleAttempt as SampleAttempt,
        Sampled as Sampled,
        SampleExchange as SampleExchange,
        SampleInvalid as SampleInvalid,
        ToolOutput as ToolOutput,
    )
    from .loop_tools import (
        BreakToolLoop as BreakToolLoop,
        ClientTools as ClientTools,
        LoopTool as LoopTool,
        ToolClient as ToolClient,
        ToolLoopResult as ToolLoopResult,
    )
    from .looper import ToolLooper as ToolLooper
    from .prompts import (
        FunctionTool as FunctionTool,
        OfferedTool as OfferedTool,
        Prompt as Prompt,
        PromptPart as PromptPart,
        ToolChoiceMode as ToolChoiceMode,
        function_tool as function_tool,
        tool_model as tool_model,
        tool_models as tool_models,
    )
    from .request import (
        IncludeContext as IncludeContext,
        SampleOptions as SampleOptions,
        SamplingPreference as SamplingPreference,
    )
    from .sampler import Sampler as Sampler
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "answers": "SampleAttempt SampleExchange SampleInvalid Sampled ToolOutput",
            "attempts": "",
            "loop": "",
            "loop_tools": "BreakToolLoop ClientTools LoopTool ToolClient ToolLoopResult",
            "looper": "ToolLooper",
            "prompts": "FunctionTool OfferedTool Prompt PromptPart ToolChoiceMode function_tool tool_model tool_models",
            "request": "IncludeContext SampleOptions SamplingPreference",
            "sampler": "Sampler",
            "structured": "",
        },
        in_calls="attempts loop looper sampler structured prompts",
    )
