"""A prompt: a function whose arguments are strings and whose value becomes messages."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypedDict, cast, get_origin

from ..errors import RemoteProtocolError
from ..protocol.jsonrpc import INVALID_PARAMS
from ..runtime import Lane, ThreadLimiter
from ..session import CallPort, Plan, ResumeMode
from ..types import (
    AudioContent,
    EmbeddedResource,
    GetPromptResult,
    Icon,
    ImageContent,
    JsonObject,
    Model,
    PromptArgument,
    PromptMessage,
    ResourceLink,
    TextContent,
)
from ..types import Prompt as PromptModel
from .forms import Elicit, with_questions
from .handler import Function, Handler, function_doc, make_handler
from .options import check_elicits, check_name, check_resume, check_timeout
from .results import ReturnError, said_in_json, shown
from .signature import Arguments, parameters_of, read_arguments
from .tool import ResumePolicy, resumed

CONTAINERS = (list, tuple, set, frozenset, dict)
BLOCKS = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)


class PromptKeywords(TypedDict, total=False):
    """What a prompt says of itself beyond its signature.

    name, title, description: the function's name and docstring, unless given.
    icons: images to show beside its name.
    timeout: seconds after which rendering is cancelled and the caller told.
    meta: more members for its `_meta`.
    elicits: as for tools.
    resume: as for tools; "auto" replays, since rendering changes nothing.
    """

    name: str
    title: str
    description: str
    icons: Sequence[Icon]
    timeout: float
    meta: JsonObject
    elicits: Sequence[Elicit[object]]
    resume: ResumePolicy


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """The same as a value, with defaults; see `PromptKeywords`."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    icons: Sequence[Icon] = ()
    timeout: float = math.inf
    meta: JsonObject | None = None
    elicits: Sequence[Elicit[object]] = ()
    resume: ResumePolicy = "auto"

    def __post_init__(self) -> None:
        check_name(self.name)
        check_timeout(self.timeout)
        check_resume(self.resume)
        check_elicits(self.elicits)


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A registered prompt. `model` is what `prompts/list` shows of it."""

    model: PromptModel
    timeout: float
    _arguments: Arguments
    _handler: Handler
    _resume: ResumeMode

    @property
    def name(self) -> str:
        return self.model.name

    def plan(self, arguments: Mapping[str, str]) -> Plan:
        """How to render it.

        Raises:
            RemoteProtocolError: -32602, an argument is wrong, missing or unknown (L-PRM-1s).
        """
        try:
            values = self._arguments.bind(dict(arguments))
        except ValueError as error:
            raise RemoteProtocolError(
                f"Invalid arguments for the prompt {self.name}: {error}", code=INVALID_PARAMS
            ) from None
        return Plan(partial(self._run, values), self.name, self.timeout, resume=self._resume)

    async def _run(self, values: dict[str, object], call: CallPort, lane: Lane) -> Model:
        value = await self._handler(values, call, lane)
        if isinstance(value, GetPromptResult):
            return value
        return GetPromptResult(description=self.model.description, messages=messages(value))

    def __repr__(self) -> str:
        return f"<Prompt {self.name}>"


def make_prompt(function: Function, options: PromptOptions, threads: ThreadLimiter) -> Prompt:
    """A prompt from a function.

    Raises:
        TypeError: the signature cannot be offered as a prompt.
        ValueError: it has no name.
    """
    name = options.name or str(getattr(function, "__name__", ""))
    if not name:
        raise ValueError("a prompt needs a name: this function has none, so give name=")
    refuse_containers(function)
    arguments = read_arguments(function)
    description = options.description or function_doc(function)
    model = PromptModel(
        name=name,
        title=options.title,
        description=description,
        arguments=prompt_arguments(arguments.schema) or None,
        icons=list(options.icons) or None,
        meta=with_questions(options.meta, options.elicits),
    )
    resume = ResumeMode.REPLAY if options.resume == "auto" else resumed(options.resume, None)
    return Prompt(
        model, options.timeout, arguments, make_handler(function, arguments.context, threads, options.elicits), resume
    )


def refuse_containers(function: Function) -> None:
    """Raise `TypeError` for a parameter that no string can become; a type with validators of its own may read one."""
    for name, annotation, _ in parameters_of(function).arguments:
        if (get_origin(annotation) or annotation) in CONTAINERS:
            raise TypeError(
                f"{function.__qualname__}: the parameter {name!r} cannot be a {inspect.formatannotation(annotation)}, since the "
                "arguments of a prompt are strings; take a str and split it"
            )


def prompt_arguments(schema: JsonObject) -> list[PromptArgument]:
    """The arguments that a signature describes, as a listing shows them."""
    properties = cast("dict[str, JsonObject]", schema.get("properties", {}))
    required = cast("list[str]", schema.get("required", []))
    return [
        PromptArgument(
            name=name,
            description=cast("str | None", details.get("description")),
            required=name in required,
        )
        for name, details in properties.items()
    ]


def messages(value: object) -> list[PromptMessage]:
    """What a prompt returned, as messages; what is no message is said by the user.

    Raises:
        ReturnError: it is nothing that can be said.
    """
    if isinstance(value, list | tuple):
        return [message for item in value for message in messages(item)]
    if isinstance(value, PromptMessage):
        return [value]
    if isinstance(value, BLOCKS):
        return [PromptMessage(role="user", content=value)]
    if value is None or isinstance(value, bool | int | float | bytes | bytearray):
        raise ReturnError(f"a prompt returns text, content blocks or messages, not {shown(value)}")
    text = value if isinstance(value, str) else said_in_json(value)
    return [PromptMessage(role="user", content=TextContent(text=text))]
