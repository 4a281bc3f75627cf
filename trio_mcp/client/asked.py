"""What a program asks for, as the params of a request. A mistake is refused here, in the words of the call that was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..types import (
    CallToolRequestParams,
    CompleteRequestParams,
    CompletionArgument,
    CompletionContext,
    GetPromptRequestParams,
    JsonObject,
    JsonValue,
    PromptReference,
    ReadResourceRequestParams,
    Reference,
    ResourceTemplateReference,
    SubscriptionFilter,
)
from .checks import texts


def a_tool(name: str, arguments: Mapping[str, JsonValue] | None, meta: JsonObject | None) -> CallToolRequestParams:
    text("the name of a tool", name)
    if arguments is not None and not isinstance(arguments, Mapping):
        raise TypeError(f"the arguments of a tool are a mapping, not {type(arguments).__name__}")
    return CallToolRequestParams(name=name, arguments=dict(arguments or {}), meta=members(meta))


def a_prompt(name: str, arguments: Mapping[str, str] | None, meta: JsonObject | None) -> GetPromptRequestParams:
    text("the name of a prompt", name)
    settled = None if arguments is None else texts("the arguments of a prompt", arguments)
    return GetPromptRequestParams(name=name, arguments=settled, meta=members(meta))


def a_resource(uri: str, meta: JsonObject | None) -> ReadResourceRequestParams:
    text("a URI", uri)
    return ReadResourceRequestParams(uri=uri, meta=members(meta))


def a_completion(ref: Reference, argument: str, value: str, context: Mapping[str, str] | None) -> CompleteRequestParams:
    if not isinstance(ref, PromptReference | ResourceTemplateReference):
        raise TypeError(
            "ref says whose argument it is: PromptReference(name=...) or ResourceTemplateReference(uri=...), "
            f"of trio_mcp.types, not {ref!r:.80}"
        )
    text("argument", argument)
    text("value", value)
    settled = None if context is None else CompletionContext(arguments=texts("the arguments of context", context))
    return CompleteRequestParams(ref=ref, argument=CompletionArgument(name=argument, value=value), context=settled)


def a_filter(tools: bool, prompts: bool, resources: bool, uris: Sequence[str]) -> SubscriptionFilter:
    """What to listen for; see `Client.listen`."""
    if isinstance(uris, str):
        raise TypeError(f"uris is a list of URIs, not one of them: uris=[{uris!r:.80}]")
    for uri in uris:
        text("each of uris", uri)
    if not (tools or prompts or resources or uris):
        raise ValueError("listen to something: tools, prompts, resources, or the uris of some")
    return SubscriptionFilter(
        tools_list_changed=tools or None,
        prompts_list_changed=prompts or None,
        resources_list_changed=resources or None,
        resource_subscriptions=list(uris) or None,
    )


def text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a string, not {type(value).__name__}: {value!r:.80}")


def members(meta: JsonObject | None) -> JsonObject | None:
    if meta is not None and not isinstance(meta, dict):
        raise TypeError(f"meta is a dict, not {type(meta).__name__}")
    return meta
