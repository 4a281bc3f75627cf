"""The scripts by which tests answer in place of a user or a model: what an answer may be, and the result that it becomes.

`MockClient` and `ScriptedProvider` read the same scripts.
"""

from .script import Action, Script, Step, UncheckedToolUse, check_answer, sample_result, tool_use, unchecked_tool_use

__all__ = [
    "Action",
    "Script",
    "Step",
    "UncheckedToolUse",
    "check_answer",
    "sample_result",
    "tool_use",
    "unchecked_tool_use",
]
