"""Asking a model: what `ctx.sample` sends, how the answer is read, and the conversation that it belongs to."""

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
