"""Tools, prompts, resources and completions whose calls another server runs: what a proxy offers where it is mounted."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias, TypeVar, cast

from ..protocol.http.headers import ParameterHeaders
from ..protocol.uri.matching import UriTemplate
from ..protocol.uri.uris import is_uri
from ..runtime import Actor, Lane, ThreadLimiter
from ..session import Call, Plan
from ..types import (
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    CompletionArgument,
    CompletionContext,
    GetPromptRequestParams,
    GetPromptResult,
    JsonObject,
    Model,
    Prompt as PromptModel,
    PromptReference,
    ReadResourceRequestParams,
    RequestParams,
    Resource as ResourceModel,
    ResourceTemplate,
    ResourceTemplateReference,
    Tool as ToolModel,
)
from .branching import BODY, BranchTerms
from .data.completion import PARAMETERS, Completer, Completions
from .data.prompts import Prompt
from .data.resources import Resource, ResourceKeywords, ResourceReader, Template
from .handler import Handler
from .mounts import inner_uri
from .options import resume_mode
from .tool_options import check_tool_name, is_harmless
from .tools.tool import Tool
from .values.signature import Arguments

M = TypeVar("M", bound=Model)

Forward: TypeAlias = Callable[[Call, Lane, str, RequestParams], Awaitable[Model]]
"""Sends the request of a call, by its method and params, to the server that runs it, and returns the result."""

NO_THREADS: Final = ThreadLimiter(1)
"""A forwarded call runs nothing in a thread."""


class ForwardingHandler(Handler):
    """A handler that sends the call on."""

    __slots__ = ("send",)

    def __init__(self, send: Callable[[Call, Lane, dict[str, object]], Awaitable[object]]) -> None:
        super().__init__(send, None, NO_THREADS, False, BODY, None, None)
        self.send = send

    async def run(
        self,
        values: dict[str, object],
        convert: Callable[[object], M],
        call: Call,
        place: Actor | Lane,
        parent: BranchTerms | None = None,  # noqa: ARG002
    ) -> M:
        """Send the call on, and return its result."""
        lane = place if isinstance(place, Lane) else Lane(place)
        return convert(await self.send(call, lane, values))


def as_they_come(schema: JsonObject) -> Arguments:
    """Return arguments that the server which runs the call checks."""
    return Arguments(schema, None, inspect.Signature.empty, lambda arguments: {**arguments})


def as_tool_result(value: object) -> CallToolResult:
    return cast("CallToolResult", value)


def forwarded_tool(model: ToolModel, forward: Forward) -> Tool:
    """Return the tool of another server.

    Args:
        model: as that server lists it. Whether it runs as a task there is for `forward` to follow; here it does not.

    Raises:
        ValueError: its name, or its `x-mcp-header`, cannot be that of a tool.
    """
    check_tool_name(model.name, hint="")

    async def call(call: Call, lane: Lane, values: dict[str, object]) -> object:
        params = CallToolRequestParams(name=model.name, arguments=cast("JsonObject", values))
        return await forward(call, lane, "tools/call", params)

    harmless = is_harmless(model.annotations)
    make: Callable[[ThreadLimiter], Tool] = lambda _threads: forwarded_tool(model, forward)  # noqa: E731
    return Tool(
        model.name,
        call,
        model.model_copy(update={"execution": None}),
        math.inf,
        (),
        ParameterHeaders.of(model.input_schema) or None,
        None,
        as_they_come(model.input_schema),
        ForwardingHandler(call),
        as_tool_result,
        # A replay calls the other server again.
        resume_mode({}, harmless=harmless),
        None,
        harmless,
        make,
        None,
    )


def forwarded_prompt(model: PromptModel, forward: Forward) -> Prompt:
    """Return the prompt of another server."""

    async def get(call: Call, lane: Lane, values: dict[str, object]) -> object:
        params = GetPromptRequestParams(name=model.name, arguments=cast("dict[str, str]", values))
        return await forward(call, lane, "prompts/get", params)

    return ForwardedPrompt(model, math.inf, as_they_come({}), ForwardingHandler(get), resume_mode({}, harmless=True))


class ForwardedPrompt(Prompt):
    """A prompt whose messages come from another server."""

    def _convert(self, value: object) -> GetPromptResult:
        return cast("GetPromptResult", value)


def forwarded_resource(model: ResourceModel, forward: Forward) -> Resource:
    """Return the resource of another server. Raises `ValueError` if it has no valid URI."""
    if not is_uri(model.uri):
        raise ValueError(f"{model.uri[:128]!r} is not a URI")
    return Resource(model, forwarding_reader(forward))


def forwarded_template(model: ResourceTemplate, forward: Forward) -> Template:
    """Return the resource template of another server. Raises `ValueError` if it is not one of RFC 6570."""
    return Template(model, UriTemplate(model.uri_template), forwarding_reader(forward))


class ForwardingReader(ResourceReader):
    """A reader that sends the URI on, and does not look into it."""

    __slots__ = ()

    def plan(self, uri: str, values: dict[str, object]) -> Plan:  # noqa: ARG002
        """Return how to read the resource of this URI."""
        return super().plan(uri, {"uri": inner_uri(self.mounts, uri)})


def forwarding_reader(forward: Forward) -> ForwardingReader:
    async def read(call: Call, lane: Lane, values: dict[str, object]) -> object:
        params = ReadResourceRequestParams(uri=cast("str", values["uri"]))
        return await forward(call, lane, "resources/read", params)

    return ForwardingReader(
        as_they_come({}), ForwardingHandler(read), ResourceKeywords(), resume_mode({}, harmless=True)
    )


class ForwardedCompletions(Completions):
    """The completions of another server: it is asked for every argument.

    Attributes:
        forward: sends the requests; None while the other server is not known to have completions.
    """

    forward: Forward | None = None

    @property
    def was_ever_filled(self) -> bool:
        """Whether the other server was ever known to have completions."""
        return self.forward is not None

    def own_completer(self, target: str, argument: str) -> Completer | None:
        """Return what asks the other server about an argument; None if it has no completions."""
        if self.forward is None:
            return None
        is_prompt = target in self._prompts.by_key
        ref = PromptReference(name=target) if is_prompt else ResourceTemplateReference(uri=target)
        return Completer(ForwardingHandler(partial(complete, self.forward, ref, argument)), frozenset(PARAMETERS))


async def complete(
    forward: Forward,
    ref: PromptReference | ResourceTemplateReference,
    argument: str,
    call: Call,
    lane: Lane,
    values: dict[str, object],
) -> object:
    """Return the completion of another server."""
    known = cast("dict[str, str]", values["arguments"])
    params = CompleteRequestParams(
        ref=ref,
        argument=CompletionArgument(name=argument, value=cast("str", values["value"])),
        context=CompletionContext(arguments=dict(known)) if known else None,
    )
    result = await forward(call, lane, "completion/complete", params)
    assert isinstance(result, CompleteResult)
    return result.completion
