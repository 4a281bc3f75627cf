"""Asking a model: what `ctx.sample` sends, how the answer is read, and the conversation that it belongs to."""

from .answers import SampleAttempt, Sampled, SampleInvalid
from .exchange import SampleExchange
from .history import ToolOutput
from .prompts import Prompt, PromptPart
from .request import IncludeContext, SampleOptions
from .sampler import Sampler
from .tools import FunctionTool, OfferedTool, ToolChoiceMode, function_tool, tool_model, tool_models

__all__ = [
    "FunctionTool",
    "IncludeContext",
    "OfferedTool",
    "Prompt",
    "PromptPart",
    "SampleAttempt",
    "SampleExchange",
    "SampleInvalid",
    "SampleOptions",
    "Sampled",
    "Sampler",
    "ToolChoiceMode",
    "ToolOutput",
    "function_tool",
    "tool_model",
    "tool_models",
]
