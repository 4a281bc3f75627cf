"""The conversation of a body or branch with a model: tool uses that wait for their results, and the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple, TypeAlias

from ...checks import mistake
from ...errors import LocalProtocolError
from ...protocol.conversation import MAX_ID_SHOWN, blocks_of, conversation_problem
from ...protocol.strict_json import dumps
from ...session.tool_loop import call_result, error_result
from ...types import (
    CallToolResult,
    ContentBlock,
    SamplingContentBlock,
    SamplingMessage,
    ToolResultContent,
    ToolUseContent,
)
from ..branching import Messages, freeze_messages
from ..content import content_of
from ..media import FileToRead

ToolOutput: TypeAlias = object
"""The result of a tool use: a text, a block or a list of them, an `Image`, JSON, a `CallToolResult`, a `ToolResultContent`, or
the exception with which the tool failed."""

MAX_IDS_SHOWN: Final = 8


class OpenUses(NamedTuple):
    """The tool uses of a message that has no results after it; `place` is the index of the message."""

    place: int
    uses: tuple[ToolUseContent, ...]


def open_uses(messages: Sequence[SamplingMessage]) -> list[OpenUses]:
    """Return the messages whose tool uses wait for results."""
    found: list[OpenUses] = []
    for index, (message, after) in enumerate(zip_longest(messages, messages[1:])):
        uses = tuple(block for block in blocks_of(message.content) if isinstance(block, ToolUseContent))
        if uses and not (after is not None and has_results(after)):
            found.append(OpenUses(index, uses))
    return found


def has_results(message: SamplingMessage) -> bool:
    """Return whether a message holds results of tools."""
    return any(isinstance(block, ToolResultContent) for block in blocks_of(message.content))


def check_conversation(messages: Sequence[SamplingMessage], *, is_history: bool) -> None:
    """Check the messages that are about to be sent to a model.

    Args:
        is_history: they are the history of a body or branch, perhaps with a prompt at its end.

    Raises:
        LocalProtocolError: they break a rule of conversations (L-SMP-3b); the text has the index and the id. If tool uses in the
            history wait for results, it has the ids of all of them.
    """
    problem = conversation_problem(messages)
    if problem is None:
        return
    if is_history and (waiting := [use.id for message in open_uses(messages) for use in message.uses]):
        problem = f"the model waits for the results of {shown(waiting)}: call add_tool_results before the next prompt"
    raise LocalProtocolError(problem)


def answered(messages: Sequence[SamplingMessage], results: Mapping[str, ToolOutput]) -> Messages:
    """Return a conversation with the results of all tool uses that wait for one, each after the message that has the use.

    Raises:
        ValueError: a tool use has no result, or a result no tool use; the message names the ids.
        TypeError: a result cannot be sent.
    """
    if not isinstance(results, Mapping):
        raise TypeError(mistake("the results", 'a mapping of ids to results, such as {call.id: "12 degrees"}', results))
    waiting = open_uses(messages)
    counts = Counter(use.id for message in waiting for use in message.uses)
    if missing := [name for name in counts if name not in results]:
        raise ValueError(f"the tool uses {shown(missing)} have no result")
    if unknown := [name for name in results if name not in counts]:
        raise ValueError(f"no tool use waits for the results {shown(unknown)}")
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(f"two answers of the model have the tool uses {shown(twice)}: ask in separate branches")
    # The others are frozen already: to copy a long history once more would hold up the event loop.
    by_index = {place: freeze_messages([result_message(uses, results)])[0] for place, uses in waiting}
    extended: list[SamplingMessage] = []
    for index, message in enumerate(messages):
        extended.append(message)
        if index in by_index:
            extended.append(by_index[index])
    return tuple(extended)


def result_message(uses: Sequence[ToolUseContent], results: Mapping[str, ToolOutput]) -> SamplingMessage:
    """Return the message with the results of one message's tool uses, in their order."""
    blocks: list[SamplingContentBlock] = [tool_result(use, results[use.id]) for use in uses]
    return SamplingMessage(role="user", content=blocks)


def tool_result(use: ToolUseContent, output: ToolOutput) -> ToolResultContent:
    """Return the result of a tool use as a block.

    Raises:
        ValueError: it is the block of another tool use.
        TypeError: JSON cannot hold it, or it is an `Image` or `Audio` of a file, which is not read here.
    """
    block = result_block(use, output)
    try:
        dumps(block.wire())
    except ValueError as error:
        raise TypeError(f"the result for {shown([use.id])} cannot be sent: {error}") from None
    return block


def result_block(use: ToolUseContent, output: ToolOutput) -> ToolResultContent:
    match output:
        case ToolResultContent():
            if output.tool_use_id != use.id:
                raise ValueError(f"the result for {shown([use.id])} is one for {shown([output.tool_use_id])}")
            return output
        case CallToolResult():
            return call_result(use, output)
        case Exception():
            return error_result(use, str(output) or type(output).__name__)
        case _:
            return ToolResultContent(tool_use_id=use.id, content=output_content(output))


def output_content(output: object) -> list[ContentBlock]:
    try:
        return content_of(output)
    except FileToRead:
        pass
    raise TypeError("a tool result has an image or audio of a file: read it in a thread, and give its bytes as data=")


def shown(ids: Iterable[str]) -> str:
    """Return ids for an error: a peer has chosen them, and how many there are."""
    listed = list(ids)
    text = ", ".join(repr(name[:MAX_ID_SHOWN]) for name in listed[:MAX_IDS_SHOWN])
    more = len(listed) - MAX_IDS_SHOWN
    return f"{text} and {more} more" if more > 0 else text
