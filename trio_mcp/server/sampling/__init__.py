"""Asking a model: what `ctx.sample` sends, how the answer is read, and the conversation that it belongs to."""

from typing import TYPE_CHECKING

from ... import late

if TYPE_CHECKING:
    from . import answers as answers
    from . import attempts as attempts
    from . import history as history
    from . import loop as loop
    from . import loop_tools as loop_tools
    from . import model as model
    from . import prompts as prompts
    from . import request as request
    from . import structured as structured
    from . import tools as tools
    from .answers import SampleAttempt, Sampled, SampleInvalid
    from .exchange import SampleExchange
    from .history import ToolOutput
    from .loop_result import BreakToolLoop, ToolLoopResult
    from .loop_tools import ClientTools, LoopTool, ToolClient
    from .looper import ToolLooper
    from .prompts import Prompt, PromptPart
    from .request import IncludeContext, SampleOptions
    from .routing import SamplingPreference
    from .sampler import Sampler
    from .tools import FunctionTool, OfferedTool, ToolChoiceMode, function_tool, tool_model, tool_models
else:
    __getattr__, __dir__ = late.exports(
        __name__,
        {
            "answers": "SampleAttempt Sampled SampleInvalid",
            "attempts": "",
            "exchange": "SampleExchange",
            "history": "ToolOutput",
            "loop": "",
            "loop_result": "BreakToolLoop ToolLoopResult",
            "loop_tools": "ClientTools LoopTool ToolClient",
            "looper": "ToolLooper",
            "model": "",
            "prompts": "Prompt PromptPart",
            "request": "IncludeContext SampleOptions",
            "routing": "SamplingPreference",
            "sampler": "Sampler",
            "structured": "",
            "tools": "FunctionTool OfferedTool ToolChoiceMode function_tool tool_model tool_models",
        },
    )

__all__ = [
    "BreakToolLoop",
    "ClientTools",
    "FunctionTool",
    "IncludeContext",
    "LoopTool",
    "OfferedTool",
    "Prompt",
    "PromptPart",
    "SampleAttempt",
    "SampleExchange",
    "SampleInvalid",
    "SampleOptions",
    "Sampled",
    "Sampler",
    "SamplingPreference",
    "ToolChoiceMode",
    "ToolClient",
    "ToolLoopResult",
    "ToolLooper",
    "ToolOutput",
    "function_tool",
    "tool_model",
    "tool_models",
]
