"""The script of a test: answers in order, or one function that answers every question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from itertools import count
from typing import Final, cast

from pydantic import BaseModel
from pydantic_core import to_json, to_jsonable_python

from ..sampling import SCHEMA_TOOL
from ..types import (
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    JsonObject,
    SamplingContentBlock,
    TextContent,
    ToolUseContent,
)

VALUES: Final = (BaseModel, Exception, Enum, str, int, float, Mapping, list, tuple)
"""What an answer may be, apart from a dataclass, a function and an action."""


class Action:
    """Base of what a client does instead of answering at once, such as `Delay`."""

    __slots__ = ()


def check_answer(where: str, answer: object, *, actions: bool) -> None:
    """Raise `TypeError` if something cannot be an answer of a script.

    Args:
        actions: whether an action may be in the script.
    """
    if isinstance(answer, type):
        raise TypeError(f"{where}: {answer.__name__} is a class: write {answer.__name__}(...)")
    if isinstance(answer, Action):
        if not actions:
            raise TypeError(f"{where}: {answer!r:.80} is for MockClient")
    elif not isinstance(answer, VALUES) and not is_dataclass(answer) and not callable(answer):
        expected = "a value, a result, a function of the question, an exception" + (
            " or a step such as Delay(5, ...)" if actions else ""
        )
        hint = "; {} confirms a form without fields" if answer is None else ""
        raise TypeError(f"{where}: an answer is {expected}, not {answer!r:.80}{hint}")


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of a script, and how errors name it: `answer 2 of elicits`."""

    name: str
    answer: object


class Script:
    """The answers to one kind of question.

    Args:
        name: the option that gave it, for errors.
        answers: a list of answers, a function that answers every question, or None if there are none.
        actions: whether an action may be an answer.

    Raises:
        TypeError: it is something else, or has something that is not an answer.
    """

    def __init__(
        self, name: str, answers: Sequence[object] | Callable[..., object] | None, *, actions: bool = False
    ) -> None:
        self.name = name
        self._every = answers if callable(answers) else None
        self._answers: tuple[object, ...] = ()
        if answers is not None and not callable(answers):
            # A string is a sequence of letters, and a dict is one answer: both are frequent mistakes.
            if isinstance(answers, str | dict) or not isinstance(answers, Sequence):
                raise TypeError(f"{name}: a list of answers, such as {name}=[{answers!r:.80}], not {answers!r:.80}")
            self._answers = tuple(answers)
        for number, answer in enumerate(self._answers, 1):
            check_answer(f"answer {number} of {name}", answer, actions=actions)
        self._used = 0

    @property
    def left(self) -> list[Step]:
        """The answers that no question has used; a function that answers every question, if there was none."""
        if self._every is not None:
            return [] if self._used else [Step(self.name, self._every)]
        return [self._step(number) for number in range(self._used + 1, len(self._answers) + 1)]

    def has(self, wanted: Callable[[object], bool]) -> bool:
        """Return whether the script has such an answer; a function that answers every question is one."""
        return any(map(wanted, self._answers if self._every is None else [self._every]))

    @property
    def last(self) -> Step | None:
        """The last answer that was taken; None before the first."""
        if self._every is not None or not self._used:
            return None
        return self._step(self._used)

    def take(self) -> Step | None:
        """Return the next answer, or None if none is left."""
        if self._every is None and self._used == len(self._answers):
            return None
        self._used += 1
        return Step(self.name, self._every) if self._every is not None else self._step(self._used)

    def _step(self, number: int) -> Step:
        return Step(f"answer {number} of {self.name}", self._answers[number - 1])

    def __str__(self) -> str:
        if self._every is not None:
            return f"{self.name} is a function"
        count = len(self._answers)
        return f"{self.name} has {count} answer{'' if count == 1 else 's'}"


# Turning the answers of a script into the results of a model.

BLOCKS: Final = (TextContent, ImageContent, AudioContent, ToolUseContent)


class UncheckedToolUse(ToolUseContent):
    """A tool call that need not fit the tools that were offered."""


def tool_use(name: str, /, **arguments: object) -> ToolUseContent:
    """Return the block with which a model calls a tool, for a script: `samples=[tool_use("search", query="fado")]`.

    Its id is the name and, in a list of several, a number: `search`, or `search_1` and `search_2`.

    Raises:
        TypeError: an argument is not JSON.
    """
    return ToolUseContent(id=name, name=name, input=to_input("tool_use", name, arguments))


def unchecked_tool_use(name: str, /, **arguments: object) -> ToolUseContent:
    """Return what `tool_use` does, for a call that the tool under test has to reject.

    `MockClient` sends it even if no such tool was offered, or if the arguments do not fit the tool's schema.

    Raises:
        TypeError: an argument is not JSON.
    """
    return UncheckedToolUse(id=name, name=name, input=to_input("unchecked_tool_use", name, arguments))


def to_input(function: str, name: str, arguments: Mapping[str, object]) -> JsonObject:
    """Return arguments as JSON. Raises `TypeError`, naming the function and the tool, if one of them has no JSON."""
    try:
        return cast("JsonObject", to_jsonable_python(arguments, by_alias=True))
    except ValueError as error:
        raise TypeError(f"{function}({name!r}): {error}") from None


def sample_result(name: str, answer: object, request: CreateMessageRequestParams, *, model: str) -> CreateMessageResult:
    """Return the answer to a sampling request: a text, blocks or data become a whole result.

    Args:
        name: names the answer in errors.
        model: the name of the model that the script stands for.

    Raises:
        TypeError: it is none of these, nor a `CreateMessageResult`, or the data is not JSON.
    """
    if isinstance(answer, CreateMessageResult):
        return answer
    blocks: list[SamplingContentBlock]
    match answer:
        case str():
            blocks = [TextContent(text=answer)]
        case TextContent() | ImageContent() | AudioContent() | ToolUseContent():
            blocks = [answer]
        case [*items] if items and all(isinstance(item, BLOCKS) for item in items):
            blocks = numbered(cast("list[SamplingContentBlock]", items))
        case _ if isinstance(answer, Mapping | BaseModel) or is_dataclass(answer):
            blocks = [data_block(name, answer, request)]
        # Without the tool it may be a mistake in the script: a text was asked for.
        case list() | int() | float() if offers_schema(request):
            blocks = [data_block(name, {"result": answer}, request)]
        case _:
            raise TypeError(
                f"{name}: a sample is answered with a string, blocks such as tool_use(...), data, or a "
                f"CreateMessageResult, not {answer!r:.200}"
            )
    uses = any(isinstance(block, ToolUseContent) for block in blocks)
    content = blocks[0] if len(blocks) == 1 else blocks
    return CreateMessageResult(
        role="assistant", content=content, model=model, stop_reason="toolUse" if uses else "endTurn"
    )


def numbered(blocks: list[SamplingContentBlock]) -> list[SamplingContentBlock]:
    """Return blocks in which each tool use that has its name for an id has a number too."""
    numbers = count(1)
    return [
        block.model_copy(update={"id": f"{block.name}_{next(numbers)}"})
        if isinstance(block, ToolUseContent) and block.id == block.name
        else block
        for block in blocks
    ]


def data_block(name: str, data: object, request: CreateMessageRequestParams) -> SamplingContentBlock:
    """Return the answer to a question for structured data: in the form that the question asks for."""
    try:
        value = to_jsonable_python(data, by_alias=True)
    except ValueError as error:
        raise TypeError(f"{name} cannot be sent: {error}") from None
    if offers_schema(request):
        return ToolUseContent(id=SCHEMA_TOOL, name=SCHEMA_TOOL, input=value)
    return TextContent(text=to_json(value).decode())


def offers_schema(request: CreateMessageRequestParams) -> bool:
    """Return whether a sampling request asks for structured data by its tool."""
    return any(tool.name == SCHEMA_TOOL for tool in request.tools or ())
