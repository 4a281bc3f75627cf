"""Results that are larger than their tool's `max_result`: a preview is sent, and the caller reads the rest as a resource.

[{"type": "text", "text": "the first characters"},
 {"type": "text", "text": "[A part of the result: 900 of 70000 characters. ...]"},
 {"type": "resource_link", "uri": "trio-mcp://results/9fK...", "size": 70100, ...}]
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Final

from ..errors import LimitExceeded, ResourceNotFound
from ..protocol.http.headers import SESSION_HEADER
from ..protocol.json_limits import held_size
from ..protocol.shown_text import shown_model
from ..protocol.strict_json import dumps
from ..protocol.uri.uris import KEPT_HERE, is_kept, with_links
from ..runtime import Actor, Lane
from ..session import Call, Plan
from ..types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    Model,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    UnknownContent,
)
from .branching import BranchTerms
from .values.content import json_text
from .values.results import plain_text

LEAST_MAX_RESULT: Final = 2048
MAX_PREVIEW_META: Final = 512
"""Bytes of a `_meta` that is sent with a preview; a larger one is left out."""

BESIDE_PREVIEW: Final = 1024 + MAX_PREVIEW_META
"""Bytes of a preview beside the text: the notice and the link."""


@dataclass(frozen=True, slots=True)
class LimitedBody:
    """The body of a tool with `max_result`. What runs around the body belongs inside, since its result is limited too."""

    run: Callable[..., Awaitable[Model]]
    name: str
    max_result: int

    async def __call__(self, call: Call, place: Actor | Lane, *parent: BranchTerms) -> CallToolResult:
        """Run the tool; return its result, or a preview if that has more than `max_result` bytes.

        Args:
            parent: the terms of the handler that runs the tool, if one does.

        Raises:
            LimitExceeded: the result is too large, and the memory budget has no room to keep it.
        """
        result = await self.run(call, place, *parent)
        assert isinstance(result, CallToolResult)
        try:
            result, encoded = sendable(result)
        except ValueError:
            # It is not JSON, and fails with an error that names the member when it is sent.
            return result
        if len(encoded) <= self.max_result:
            return result
        return preview_of(result, encoded, self.name, self.max_result, call)


def sendable(result: CallToolResult) -> tuple[CallToolResult, bytes]:
    """Return a result that can be sent, and its bytes. Raises `ValueError` if JSON cannot hold it."""
    try:
        return result, result.encode()
    except ValueError:
        result = shown_model(result)
        return result, result.encode()


def preview_of(result: CallToolResult, encoded: bytes, name: str, max_result: int, call: Call) -> CallToolResult:
    """Keep a result, and return what is sent in its place. Raises as `LimitedBody` does."""
    kept, size = call.services.kept, len(encoded)
    account = call.actor.account
    if account is None:
        account = call.services.options.memory.open(principal=call.facts.principal)
    # Made with an empty URI: the name is known only when there is something to keep.
    contents = contents_of(result, "")
    try:
        token = kept.keep(ReadResourceResult(contents=contents), held_size(encoded), owner_of(call), account)
    except LimitExceeded as error:
        raise LimitExceeded(
            f"the result of {name} has {size} bytes; more than {max_result} are not sent at once, and it cannot be kept: {error}"
        ) from None
    uri = KEPT_HERE + token
    meta = result.meta if len(dumps(result.meta or {})) <= MAX_PREVIEW_META else None
    shown = cut(result.text, max_result - BESIDE_PREVIEW)
    others = sum(not isinstance(block, TextContent) for block in result.content)
    parts = f"{len(shown)} of {len(result.text)} characters" + (f", and none of {others} other parts" if others else "")
    notice = f"[A part of the result: {parts}. Read the resource {uri} within {kept.ttl:g} seconds for all of it.]"
    link = ResourceLink(
        uri=uri,
        name=f"result of {name}",
        description="The whole result.",
        mime_type=contents[0].mime_type if len(contents) == 1 else None,
        size=size,
    )
    content: list[ContentBlock] = [TextContent(text=shown)] if shown else []
    return CallToolResult(content=[*content, TextContent(text=notice), link], is_error=result.is_error, meta=meta)


def read_result(uri: str) -> Plan:
    """Return how to read a result that was kept."""
    return Plan(partial(run_read, uri), uri)


async def run_read(uri: str, call: Call, _place: Actor | Lane, *_parent: BranchTerms) -> ReadResourceResult:
    """Return the contents of a result that was kept for this caller.

    Raises:
        ResourceNotFound: it is unknown, over, or of another owner.
    """
    found = call.services.kept.find(uri.removeprefix(KEPT_HERE), owner_of(call))
    if found is None:
        raise ResourceNotFound(uri)
    return ReadResourceResult(contents=[part.model_copy(update={"uri": part.uri or uri}) for part in found.contents])


def with_kept_links(result: Model, rename: Callable[[str], str]) -> Model:
    """Return the result of a tool or of a resource with other URIs for the results that were kept.

    Args:
        rename: returns the new URI, or the same one.
    """
    match result:
        case CallToolResult(content=content):
            uris = [block.uri for block in content if isinstance(block, ResourceLink)]
        case ReadResourceResult(contents=contents):
            uris = [part.uri for part in contents]
        case _:
            uris = []
    is_renamed = any(is_kept(uri) and rename(uri) != uri for uri in uris)
    return type(result).model_validate(with_links(result.wire(), rename)) if is_renamed else result


def owner_of(call: Call) -> Hashable:
    """Return who may read the results of a call: its principal; without one, its session or its connection.

    A modern request over HTTP without a principal belongs to nothing. There the name in the URI is all that protects a result.
    """
    facts = call.facts
    if facts.principal is not None:
        return facts.principal
    if facts.own_headers:
        return (SESSION_HEADER, facts.headers.get(SESSION_HEADER))
    return None if call.actor.account is None else call.actor.account.connection


def contents_of(result: CallToolResult, uri: str) -> list[TextResourceContents | BlobResourceContents]:
    """Return the contents of the resource that has all of a result: its structure as JSON, and each of its blocks."""
    contents: list[TextResourceContents | BlobResourceContents] = []
    repeated = None
    if "structured_content" in result.model_fields_set:
        value = result.structured_content if result.is_error else result.data
        repeated = plain_text(value)
        mime_type = "text/plain" if isinstance(value, str) else "application/json"
        contents.append(TextResourceContents(uri=uri, mime_type=mime_type, text=repeated))
    for block in result.content:
        match block:
            case TextContent(text=text):
                if text != repeated:
                    contents.append(TextResourceContents(uri=uri, mime_type="text/plain", text=text))
            case ImageContent() | AudioContent():
                contents.append(BlobResourceContents(uri=uri, mime_type=block.mime_type, blob=block.data))
            case EmbeddedResource(resource=resource):
                contents.append(resource)
            case ResourceLink() | UnknownContent():
                contents.append(
                    TextResourceContents(uri=uri, mime_type="application/json", text=json_text(block.wire()))
                )
    return contents


def cut(text: str, size: int) -> str:
    """Return the beginning of a text that has at most this many bytes as JSON."""
    text = text[:size]
    # A character takes up to twelve bytes; each round leaves about as many as fit.
    while (length := len(dumps(text))) > size:
        text = text[: min(len(text) - 1, len(text) * size // length)]
    return text
