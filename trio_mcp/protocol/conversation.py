"""The rules for the conversation in a sampling request (L-SMP-3b), which both sides check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..types import SamplingContentBlock, SamplingMessage, TextContent, ToolResultContent, ToolUseContent

MAX_ID_SHOWN = 64
"""Characters of an id that an error shows. A peer may have chosen it."""


def blocks_of(content: SamplingContentBlock | list[SamplingContentBlock]) -> list[SamplingContentBlock]:
    """Return the blocks of a message or of an answer; revisions before 2025-11-25 have a single one, without a list."""
    return content if isinstance(content, list) else [content]


def conversation_problem(messages: Sequence[SamplingMessage]) -> str | None:
    """Return which rule a conversation breaks, with the index of the message and the id of the tool use; None if it breaks none.

    An assistant message with tool uses is followed directly by a user message that answers each id exactly once and has nothing
    but results. Results appear nowhere else. An id may be used again in a later message: some models number each answer from 0.
    """
    open_ids: Counter[str] = Counter()
    for index, message in enumerate(messages):
        # Nearly every message, of which a conversation may have thousands.
        if isinstance(message.content, TextContent) and not open_ids:
            continue
        blocks = blocks_of(message.content)
        uses = [block.id for block in blocks if isinstance(block, ToolUseContent)]
        results = [block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)]
        problem = (
            _role_problem(message.role, uses, results)
            or _mixture_problem(len(blocks), results)
            or _answers_problem(open_ids, Counter(results))
            or _use_problem(uses)
        )
        if problem is not None:
            return f"messages[{index}]: {problem}"
        open_ids = Counter(uses)
    if open_ids:
        return f"messages[{len(messages) - 1}]: the tool use {_shown(next(iter(open_ids)))} has no result after it"
    return None


def answer_problem(role: str, content: SamplingContentBlock | list[SamplingContentBlock]) -> str | None:
    """Return why blocks cannot be the answer of a model: a result of a tool, two uses with one id; None if they can."""
    blocks = blocks_of(content)
    results = [block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)]
    if results:
        return f"a model does not return tool results, such as the one for {_shown(results[0])}"
    uses = [block.id for block in blocks if isinstance(block, ToolUseContent)]
    if uses and role != "assistant":
        return f"the tool use {_shown(uses[0])} is not in a message of the assistant"
    return _use_problem(uses)


def _role_problem(role: str, uses: list[str], results: list[str]) -> str | None:
    if uses and role != "assistant":
        return f"the tool use {_shown(uses[0])} is not in a message of the assistant"
    if results and role != "user":
        return f"the result for the tool use {_shown(results[0])} is not in a message of the user"
    return None


def _mixture_problem(count: int, results: list[str]) -> str | None:
    if results and len(results) < count:
        return f"a message with the result for the tool use {_shown(results[0])} has other blocks too"
    return None


def _answers_problem(open_ids: Counter[str], results: Counter[str]) -> str | None:
    """Compare the tool uses of the message before with the results of this one."""
    for tool_use_id in open_ids:
        if tool_use_id not in results:
            return f"the tool use {_shown(tool_use_id)} of the message before has no result here"
    for tool_use_id, count in results.items():
        if tool_use_id not in open_ids:
            return f"the result for {_shown(tool_use_id)} answers no tool use of the message before"
        if count > 1:
            return f"the tool use {_shown(tool_use_id)} has {count} results"
    return None


def _use_problem(uses: list[str]) -> str | None:
    for tool_use_id, count in Counter(uses).items():
        if count > 1:
            return f"{count} tool uses have the id {_shown(tool_use_id)}"
    return None


def _shown(tool_use_id: str) -> str:
    return repr(tool_use_id[:MAX_ID_SHOWN])
