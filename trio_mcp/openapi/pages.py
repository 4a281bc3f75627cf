"""The next page of a response, as arguments for the next call of the same tool.

An API says that there is one in a `Link` header with `rel="next"` (RFC 8288), or its document does in `links`: a link whose name
has the word `next` and which leads to the same operation. No page is fetched by itself.

    Link: </pets?page=2&limit=10>; rel="next"                                            {"page": 2, "limit": 10}
    links: {next: {operationId: listPets, parameters: {cursor: $response.body#/next}}}   {"cursor": "the value in the body"}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from ..base.named_tuples import NamedTuple
from ..types import JsonObject, JsonValue
from .parameters import Parameter
from .parts import LinkPart, read
from .sending import ApiResponse, joined_url, same_origin

MAX_LINK_HEADER: Final = 8192
# Possessive, so that no header is read in more than linear time.
LINK: Final = re.compile(
    r"<([^<>]*+)>((?:\s*+;\s*+[^\s=;,]++\s*+(?:=\s*+(?:\"[^\"]*+\"|[^\s\";,]*+))?+)*+)",
)
REL: Final = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s\";,]*))", re.IGNORECASE)
INDEX: Final = re.compile(r"[0-9]{1,9}")
LOCATIONS: Final = ("path", "query", "header", "cookie")


class Addressed(Protocol):
    """An operation, as far as a link names it."""

    @property
    def id(self) -> str | None: ...

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...


class PageLink(NamedTuple):
    """A link to the next page: the values of parameters, by name, as constants or expressions."""

    parameters: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Answered:
    """A call that was answered.

    Attributes:
        value: the body, if it is JSON.
    """

    parameters: Sequence[Parameter]
    schema: JsonObject
    arguments: JsonObject
    response: ApiResponse
    value: JsonValue


def page_links(links: Mapping[str, JsonObject], operation: Addressed) -> Iterator[PageLink]:
    """Yield the links of a document from an operation to its next page. Raises `UnsupportedOperation` if one is wrong."""
    for name, each in links.items():
        link = read(LinkPart, each, f"links[{name}]")
        pointer = f"#/paths/{operation.path.replace('~', '~0').replace('/', '~1')}/{operation.method.lower()}"
        same = link.operation_id == operation.id if link.operation_id is not None else link.operation_ref == pointer
        if same and "next" in name.lower():
            yield PageLink(link.parameters)


def next_page(links: Sequence[PageLink], answered: Answered) -> JsonObject | None:
    """Return the arguments of the call that returns the next page; None if the API says of none."""
    found = header_page(answered)
    for link in links:
        if found is None:
            found = linked_page(link, answered)
    return None if found is None or found == answered.arguments else found


def header_page(answered: Answered) -> JsonObject | None:
    """Return the arguments of the next page that a `Link` header names, if it leads to the same operation."""
    target = next_target(answered.response.headers.get("link", ""))
    if target is None:
        return None
    url = joined_url(answered.response.url, target)
    if url is None or not same_origin(answered.response.url, url):
        return None
    here, there = urlsplit(answered.response.url), urlsplit(url)
    if unquote(here.path) != unquote(there.path):
        return None
    try:
        query = parse_qs(there.query, keep_blank_values=True, max_num_fields=200)
    except ValueError:
        return None
    arguments = dict(answered.arguments)
    for parameter in answered.parameters:
        if parameter.location != "query":
            continue
        arguments.pop(parameter.argument, None)
        if parameter.name in query:
            arguments[parameter.argument] = typed(query[parameter.name], parameter, answered.schema)
    return arguments


def next_target(header: str) -> str | None:
    """Return where a `Link` header leads with `rel="next"`."""
    for target, attributes in LINK.findall(header[:MAX_LINK_HEADER]):
        for quoted, bare in REL.findall(attributes):
            if "next" in (quoted or bare).lower().split():
                return str(target)
    return None


def linked_page(link: PageLink, answered: Answered) -> JsonObject | None:
    """Return the arguments that a link of the document gives; None if one of its values is missing, as on the last page."""
    arguments = dict(answered.arguments)
    for name, value in link.parameters.items():
        parameter = named(name, answered.parameters)
        found = evaluated(value, answered)
        if parameter is None or found is None or found == "":
            return None
        arguments[parameter.argument] = typed([found], parameter, answered.schema) if isinstance(found, str) else found
    return arguments


def named(name: str, parameters: Sequence[Parameter]) -> Parameter | None:
    """Return the parameter of a name, which may begin with its place, as in `query.cursor`."""
    place, _, rest = name.partition(".")
    for each in parameters:
        if each.name == name or (place in LOCATIONS and (each.location, each.name) == (place, rest)):
            return each
    return None


def evaluated(value: JsonValue, answered: Answered) -> JsonValue:
    """Return the value of a runtime expression such as `$response.body#/next`, or a constant; None if there is none."""
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    if value.startswith("$response.body#"):
        return at_pointer(answered.value, value.removeprefix("$response.body#"))
    if value.startswith("$response.header."):
        return answered.response.headers.get(value.removeprefix("$response.header."))
    if value.startswith("$request."):
        parameter = named(value.removeprefix("$request."), answered.parameters)
        return None if parameter is None else answered.arguments.get(parameter.argument)
    return None


def at_pointer(value: JsonValue, pointer: str) -> JsonValue:
    """Return what a JSON pointer leads to, or None."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and INDEX.fullmatch(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def typed(texts: Sequence[str], parameter: Parameter, schema: JsonObject) -> JsonValue:
    """Return the texts of a query as the value of an argument: a number where its schema takes one."""
    properties = schema.get("properties")
    wanted = properties.get(parameter.argument) if isinstance(properties, dict) else None
    kinds = kinds_of(wanted)
    if "array" in kinds:
        items = kinds_of(wanted.get("items")) if isinstance(wanted, dict) else frozenset[str]()
        split = texts if parameter.explode or len(texts) != 1 else texts[0].split(",")
        return [converted(text, items) for text in split]
    return converted(texts[-1], kinds)


def kinds_of(schema: JsonValue) -> frozenset[str]:
    """Return the types that a schema allows, also in `anyOf` and `oneOf`."""
    if not isinstance(schema, dict):
        return frozenset()
    kind = schema.get("type")
    found = {each for each in (kind if isinstance(kind, list) else [kind]) if isinstance(each, str)}
    for composed in ("anyOf", "oneOf"):
        options = schema.get(composed)
        for option in options if isinstance(options, list) else ():
            found |= kinds_of(option)
    return frozenset(found)


def converted(text: str, kinds: frozenset[str]) -> JsonValue:
    """Return a text as a number or a boolean if only that is allowed."""
    if "string" in kinds or not text.isascii() or len(text) > 40:
        return text
    if "integer" in kinds and re.fullmatch(r"-?\d+", text):
        return int(text)
    if "number" in kinds and re.fullmatch(r"-?\d+(\.\d+)?", text):
        return float(text) if "." in text else int(text)
    if "boolean" in kinds and text in ("true", "false"):
        return text == "true"
    return text
