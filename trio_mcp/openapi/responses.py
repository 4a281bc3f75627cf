"""A response of an API as the result of a tool: JSON as structure, text, images, audio and files, and errors for the model."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import unquote, urlsplit

from ..base.named_tuples import NamedTuple
from ..errors import RemoteProtocolError
from ..protocol.schema.json_schema import Schema
from ..protocol.schema.references import CheckTooExpensive
from ..protocol.strict_json import JsonLimits, dumps, loads
from ..server.values.media import Audio, File, Image, is_text
from ..server.values.results import ToolResult, plain_text
from ..types import ContentBlock, JsonObject, JsonValue, TextContent
from .operations import Output
from .parameters import is_json
from .reading import Check, decoded, never_ends
from .sending import ApiResponse

STATUS_META: Final = "trio-mcp/http-status"
"""The member of a result's `_meta` that has the status of a response which is not a success."""
NEXT_PAGE_META: Final = "trio-mcp/next-page"
"""The member of a result's `_meta` that has the arguments for the next page."""

FILE_NAME: Final = re.compile(r"filename\*?=(?:UTF-8''([^;\s]+)|\"([^\"]*)\"|([^;\s\"]+))", re.IGNORECASE)
CHARSET: Final = re.compile(r"charset=\"?([\w.:-]{1,40})", re.IGNORECASE)
MAX_NAME: Final = 128
MAX_LEVELS: Final = JsonLimits().max_depth - 4
"""Levels of a body: a result in its message has some more."""
NOT_JSON: Final = object()


class Answer(NamedTuple):
    """A response that was read.

    Attributes:
        value: the body, if it is JSON.
    """

    result: ToolResult
    value: JsonValue = None


def answer_of(response: ApiResponse, output: Output, max_error_body: int, check: Check = never_ends) -> Answer:
    """Return what a tool returns for a response.

    Args:
        check: called between the steps; raises if nothing waits for the answer any longer.
    """
    if not 200 <= response.status < 300:
        return Answer(error_of(response, max_error_body))
    if is_json(response.content_type) and response.body:
        value = json_of(response.body)
        check()
        if value is not NOT_JSON:
            value = cast("JsonValue", value)
            return Answer(structured(response, value, output, max_error_body), value)
    if output.schema is not None:
        return Answer(
            mismatch(response, f"it is {response.content_type or 'of no type'}, and not JSON", max_error_body)
        )
    return Answer(ToolResult(content=blocks_of(response, check)))


def json_of(body: bytes) -> object:
    """Return the value of a body, or `NOT_JSON`: also if a client would not read it in the message of a result."""
    try:
        return loads(body, JsonLimits(max_bytes=len(body), max_depth=MAX_LEVELS, max_values=1_000_000))
    except RemoteProtocolError:
        return NOT_JSON


def structured(response: ApiResponse, value: JsonValue, output: Output, max_error_body: int) -> ToolResult:
    """Return a result with JSON as structure and as text. One that does not match the document is an error that shows it."""
    wrapped = not isinstance(value, dict) if output.schema is None else output.wrapped
    content: JsonValue = {"result": value} if wrapped else value
    if output.schema is not None:
        try:
            problem = Schema.compile(output.schema, "output_schema").quick_check(content)
        except CheckTooExpensive:
            # What converts the result of the tool checks it too, in a thread.
            problem = None
        if problem is not None:
            return mismatch(response, problem, max_error_body)
    return ToolResult(content=[TextContent(text=plain_text(value))], structured_content=content)


def mismatch(response: ApiResponse, problem: str, max_body: int) -> ToolResult:
    """Return the result for a success whose body is not what the document declares, which a client would reject."""
    text = f"The API answered {status_text(response.status)}, but not with what its OpenAPI document declares: {problem:.500}"
    return ToolResult(
        content=[TextContent(text=f"{text}\n{excerpt(response, max_body)}".strip())],
        is_error=True,
        meta={STATUS_META: response.status},
    )


def error_of(response: ApiResponse, max_body: int) -> ToolResult:
    """Return the result for a response that is not a success: its status, and the beginning of its body."""
    text = f"The API answered {status_text(response.status)}."
    if response.location is not None:
        text += f" It redirects to {response.location:.500}, where no call of this tool goes."
    if retry := response.headers.get("retry-after"):
        text += f" Try again after {retry:.40}{' seconds' if retry.isdecimal() else ''}."
    return ToolResult(
        content=[TextContent(text=f"{text}\n{excerpt(response, max_body)}".strip())],
        is_error=True,
        meta={STATUS_META: response.status},
    )


def status_text(status: int) -> str:
    """Return a status with its phrase."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def excerpt(response: ApiResponse, most: int) -> str:
    """Return the beginning of a body; of one that is not text, its type and its size."""
    if not response.body:
        return ""
    if not (is_text(response.content_type) or response.content_type in ("", "application/x-www-form-urlencoded")):
        return f"[{len(response.body)} bytes of {response.content_type}]"
    # A character has at most four bytes.
    text = decoded(response.body[: 4 * most + 4], charset_of(response))
    return text if len(text) <= most else f"{text[:most]}... [{len(response.body)} bytes in all]"


def charset_of(response: ApiResponse) -> str:
    """Return the name that a response gives its encoding; empty if it gives none."""
    found = CHARSET.search(response.headers.get("content-type", ""))
    return found[1] if found else ""


def blocks_of(response: ApiResponse, check: Check = never_ends) -> list[ContentBlock]:
    """Return the content blocks for a body without a structure."""
    kind = response.content_type
    if not response.body:
        return [TextContent(text=status_text(response.status))]
    if kind.startswith("image/") and not kind.startswith("image/svg"):
        return [Image(data=response.body, mime_type=kind).block()]
    if kind.startswith("audio/"):
        return [Audio(data=response.body, mime_type=kind).block()]
    name = file_name(response)
    if name is None and is_text(kind):
        return [TextContent(text=decoded(response.body, charset_of(response), check))]
    last = unquote(urlsplit(response.url).path.rpartition("/")[2]) or "response"
    mime_type = kind or "application/octet-stream"
    return [File(data=response.body, name=(name or last)[:MAX_NAME], mime_type=mime_type).block()]


def file_name(response: ApiResponse) -> str | None:
    """Return the name that a response gives its body, without any folder; None if it gives none."""
    found = FILE_NAME.search(response.headers.get("content-disposition", "")[:1000])
    if found is None:
        return None
    name = unquote(found[1]) if found[1] else (found[2] or found[3] or "")
    plain = re.split(r"[/\\]", name)[-1]
    return plain if plain.isprintable() and plain not in ("", ".", "..") else None


def with_next_page(result: ToolResult, arguments: JsonObject) -> ToolResult:
    """Return a result that says how to get the next page."""
    note = f"There is a next page: call this tool again with {dumps(arguments).decode()}"
    meta = {**(result.meta or {}), NEXT_PAGE_META: arguments}
    return result.model_copy(update={"content": [*result.content, TextContent(text=note)], "meta": meta})
