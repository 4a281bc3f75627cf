"""Prompts: a function whose arguments are strings and whose value is converted to messages, and how `prompts/get` runs it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, cast, get_origin

from pydantic import ValidationError

from ... import server
from ...errors import RemoteProtocolError
from ...protocol.jsonrpc import INVALID_PARAMS
from ...runtime import ThreadLimiter
from ...session import Caller, Plan, RequestFacts, ResumeMode
from ...types import (
    GetPromptRequestParams,
    GetPromptResult,
    JsonObject,
    Model,
    Prompt as PromptModel,
    PromptArgument,
    PromptMessage,
    TextContent,
)
from ..access import Access, access_of
from ..branching import BranchTerms
from ..catalog import Catalog
from ..handler import Function, Handler, make_handler
from ..mounts import MountPoint, Mounts, mounted_body
from ..options import (
    OfferKeywords,
    check_listable,
    check_offer,
    listed_members,
    name_for,
    on_its_loop,
    question_keys,
    resume_mode,
)
from ..values.callables import callable_name
from ..values.content import Block, convert_or_read, sound_block, to_json_text
from ..values.media import Media, media_block
from ..values.return_errors import ReturnError, value_label
from ..values.signature import Arguments, parameters_of, signature_arguments

MAX_LOOKED_AT: Final = 500
"""How many prompts are looked at for one that a caller may have meant."""

CONTAINERS = (list, tuple, set, frozenset, dict)


class PromptKeywords(OfferKeywords, total=False):
    """The options of a prompt: those of `OfferKeywords`."""


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A registered prompt.

    Attributes:
        model: what `prompts/list` shows.
        access: who sees and gets it; None for everybody.
        mounts: the servers that it comes through; empty for a prompt of the server itself.
    """

    model: PromptModel
    timeout: float
    _arguments: Arguments
    _handler: Handler
    _resume: ResumeMode
    access: Access | None = None
    mounts: Mounts = ()

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def function(self) -> Function:
        """What its author registered."""
        return self._handler.function

    def mounted(self, mount: MountPoint) -> Prompt:
        """Return the prompt as the outer server of a mount has it."""
        model = self.model.model_copy(update={"name": mount.outer_name(self.name)})
        return replace(self, model=model, mounts=(*self.mounts, mount))

    @property
    def argument_names(self) -> frozenset[str]:
        return frozenset(argument.name for argument in self.model.arguments or ())

    def plan(self, arguments: Mapping[str, str]) -> Plan:
        """Return how to render it.

        Raises:
            RemoteProtocolError: -32602, an argument is wrong, missing or unknown (L-PRM-1s).
        """
        try:
            # Pydantic converts the strings, so that a parameter may be an int or a date.
            values = self._arguments.bind(dict(arguments))
        except ValueError as error:
            text = f"Invalid arguments for the prompt {self.name}: {error}"
            raise RemoteProtocolError(text, code=INVALID_PARAMS) from None
        run = partial(self._handler.run, values, self._convert)
        body = mounted_body(self.mounts, "prompt", self.name, arguments, run) if self.mounts else run
        return Plan(body, self.name, self.timeout, resume=self._resume)

    def _convert(self, value: object) -> GetPromptResult:
        return convert_or_read(self._result, value)

    def _result(self, value: object) -> GetPromptResult:
        if isinstance(value, GetPromptResult):
            return value
        return GetPromptResult(description=self.model.description, messages=to_messages(value))

    def __repr__(self) -> str:
        return f"<Prompt {self.name}>"


def get_prompt(prompts: Catalog[Prompt], facts: RequestFacts, params: Model) -> Plan:
    """Serve `prompts/get`.

    Raises:
        RemoteProtocolError: -32602, there is no such prompt, or its arguments are wrong; -32600, the caller lacks its scopes.
    """
    assert isinstance(params, GetPromptRequestParams)
    return find_prompt(prompts, params.name, facts).plan(params.arguments or {})


def check_prompt(prompts: Catalog[Prompt], facts: RequestFacts, params: Model) -> None:
    """Check the caller of a request that continues a prompt; one that was removed in the meantime goes on."""
    assert isinstance(params, GetPromptRequestParams)
    if params.name in prompts.by_key:
        find_prompt(prompts, params.name, facts)


def find_prompt(prompts: Catalog[Prompt], name: str, facts: RequestFacts) -> Prompt:
    """Return the prompt that a peer names.

    Raises:
        RemoteProtocolError: -32602, there is none that the caller sees; -32600, it lacks the scopes.
    """
    prompt = prompts.by_key.get(name)
    if prompt is None:
        raise unknown_prompt(prompts, name, facts.caller)
    if prompt.access is not None:
        caller = facts.caller
        prompt.access.check(caller, f"the prompt {prompt.name}", partial(unknown_prompt, prompts, name, caller))
    return prompt


def unknown_prompt(prompts: Catalog[Prompt], name: str, caller: Caller | None) -> RemoteProtocolError:
    """Return the error for a prompt that does not exist, or is hidden; it names none that is hidden from this caller."""
    # Not the names in `by_key`: another thread may change it meanwhile. Of the first ones: see `unknown_tool`.
    first = [numbered.item for numbered in prompts.snapshot()[:MAX_LOOKED_AT]]
    known = (each.name for each in first if each.access is None or not each.access.hides_from(caller))
    return RemoteProtocolError(
        f"Unknown prompt: {name[:128]}{server.other_names.meant(name, known)}", code=INVALID_PARAMS
    )


def make_prompt(function: Function, options: PromptKeywords, threads: ThreadLimiter) -> Prompt:
    """Return a prompt that runs a function.

    Raises:
        TypeError: the signature cannot be that of a prompt, or an option is unknown or has the wrong type.
        ValueError: it has no name, or an option is not allowed.
    """
    check_offer(options, PromptKeywords.__optional_keys__, "prompt()")
    name = name_for(function, options)
    if not name:
        raise ValueError("a prompt needs a name: this function has none, so give name=")
    reject_containers(function)
    arguments = signature_arguments(function)
    listed = prompt_arguments(arguments.schema) or None
    model = PromptModel(name=name, arguments=listed, **listed_members(function, options))
    check_listable("prompt", name, model)
    handler = make_handler(
        on_its_loop(function, options), arguments.context, threads, BranchTerms(question_keys(options))
    )
    # Rendering a prompt changes nothing, so that running it twice is harmless.
    resume, timeout = resume_mode(options, harmless=True), options.get("timeout", math.inf)
    return Prompt(model, timeout, arguments, handler, resume, access_of(name, options))


def reject_containers(function: Function) -> None:
    """Raise `TypeError` for a parameter that cannot be made from a string."""
    # Only the built-in containers: another type may have validators that parse a string.
    for parameter in parameters_of(function).arguments:
        if (get_origin(parameter.annotation) or parameter.annotation) in CONTAINERS:
            kind = inspect.formatannotation(parameter.annotation)
            raise TypeError(
                f"{callable_name(function)}: the parameter {parameter.name!r} cannot be a {kind}, since the "
                "arguments of a prompt are strings; take a str and split it"
            )


def prompt_arguments(schema: JsonObject) -> list[PromptArgument]:
    """Return the arguments in a schema as `prompts/list` shows them."""
    properties = cast("dict[str, JsonObject]", schema.get("properties", {}))
    required = cast("list[str]", schema.get("required", []))
    return [
        PromptArgument(name=name, description=cast("str | None", details.get("description")), required=name in required)
        for name, details in properties.items()
    ]


def to_messages(value: object) -> list[PromptMessage]:
    """Return the value of a prompt as messages; whatever is not a message becomes one of the user.

    Raises:
        ReturnError: the value cannot be a message.
    """
    if isinstance(value, list | tuple):
        return [message for item in value for message in to_messages(item)]
    if isinstance(value, PromptMessage):
        return [value]
    if isinstance(value, dict) and {"role", "content"} <= value.keys():
        return [read_message(value)]
    if isinstance(value, Block):
        return [PromptMessage(role="user", content=sound_block(value))]
    if isinstance(value, Media):
        return [PromptMessage(role="user", content=media_block(value))]
    # All of these are JSON, or nearly, but no author wants a model to read "null" or "3.0": it is a forgotten `return`.
    if value is None or isinstance(value, bool | int | float | bytes | bytearray):
        raise ReturnError(f"a prompt returns text, content blocks or messages, not {value_label(value)}")
    text = value if isinstance(value, str) else to_json_text(value)
    return [PromptMessage(role="user", content=TextContent(text=text))]


def read_message(value: Mapping[str, object]) -> PromptMessage:
    """Return the message that a dict with a role and a content describes, as the official SDK reads it.

    Raises:
        ReturnError: it is not a message. As text it would be a message of the user, whatever its role.
    """
    content = value["content"]
    if isinstance(content, Media):
        content = media_block(content)
    elif isinstance(content, str):
        content = TextContent(text=content)
    try:
        return PromptMessage.model_validate({**value, "content": content})
    except ValidationError:
        raise ReturnError(
            "a prompt returned a dict with a role and a content that is not a message: write "
            'PromptMessage(role="user" or "assistant", content=TextContent(text="...")), or a dict with these two members'
        ) from None
