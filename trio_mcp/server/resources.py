"""Resources: a function for one URI, or for the family of URIs that a template describes (RFC 6570)."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypedDict, cast

from ..errors import RemoteProtocolError, ResourceNotFound
from ..protocol.jsonrpc import INVALID_PARAMS
from ..protocol.uri.template import UriTemplate
from ..protocol.uri.uris import is_uri
from ..runtime import Lane, ThreadLimiter
from ..session import CallPort, Plan, ResumeMode
from ..types import (
    Annotations,
    BlobResourceContents,
    CacheScope,
    Icon,
    JsonObject,
    Model,
    ReadResourceResult,
    ResourceTemplate,
    TextResourceContents,
)
from ..types import Resource as ResourceModel
from .forms import Elicit, with_questions
from .handler import Function, Handler, function_doc, make_handler
from .options import check_elicits, check_name, check_resume, check_scope, check_timeout, check_ttl
from .results import said_in_json
from .signature import Arguments, read_arguments
from .tool import ResumePolicy, resumed

Contents = TextResourceContents | BlobResourceContents


class ResourceKeywords(TypedDict, total=False):
    """What a resource says of itself.

    name, title, description: the function's name and docstring, unless given.
    mime_type: of its contents; text/plain, application/json or application/octet-stream by what the function returns.
    size: in bytes, where it is known (not for templates).
    icons, annotations: for whom it is, how important, and what to show beside it.
    ttl: seconds for which a client may keep what it read (2026-07-28); 0 for not at all.
    cache_scope: "public" when what is read does not depend on who reads.
    timeout: seconds after which reading is cancelled and the caller told.
    meta: more members for its `_meta`.
    elicits: as for tools.
    resume: as for tools; "auto" replays, since reading changes nothing.
    """

    name: str
    title: str
    description: str
    mime_type: str
    size: int
    icons: Sequence[Icon]
    annotations: Annotations
    ttl: float
    cache_scope: CacheScope
    timeout: float
    meta: JsonObject
    elicits: Sequence[Elicit[object]]
    resume: ResumePolicy


@dataclass(frozen=True, slots=True)
class ResourceOptions:
    """The same as a value, with defaults; see `ResourceKeywords`."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: Sequence[Icon] = ()
    annotations: Annotations | None = None
    ttl: float = 0.0
    cache_scope: CacheScope = "private"
    timeout: float = math.inf
    meta: JsonObject | None = None
    elicits: Sequence[Elicit[object]] = ()
    resume: ResumePolicy = "auto"

    def __post_init__(self) -> None:
        check_name(self.name)
        check_timeout(self.timeout)
        check_resume(self.resume)
        check_elicits(self.elicits)
        check_ttl("ttl", self.ttl)
        check_scope("cache_scope", self.cache_scope)


@dataclass(frozen=True, slots=True)
class Reader:
    """A function that reads, and what holds for all it reads."""

    arguments: Arguments
    handler: Handler
    options: ResourceOptions
    resume: ResumeMode

    def plan(self, uri: str, values: dict[str, object]) -> Plan:
        return Plan(partial(self._run, uri, values), uri, self.options.timeout, resume=self.resume)

    async def _run(self, uri: str, values: dict[str, object], call: CallPort, lane: Lane) -> Model:
        value = await self.handler(values, call, lane)
        options = self.options
        if isinstance(value, ReadResourceResult):
            result = value
        else:
            result = ReadResourceResult(contents=contents(uri, value, options.mime_type))
        if not result.contents:  # never an empty answer (M-RES-1s)
            raise ResourceNotFound(uri)
        hints = {"ttl_ms": round(options.ttl * 1000), "cache_scope": options.cache_scope}
        unset = {name: hint for name, hint in hints.items() if getattr(result, name) is None}
        return result.model_copy(update=unset)


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """A registered resource. `model` is what `resources/list` shows of it."""

    model: ResourceModel
    _reader: Reader

    def plan(self) -> Plan:
        """How to read it."""
        return self._reader.plan(self.model.uri, {})

    def __repr__(self) -> str:
        return f"<Resource {self.model.uri}>"


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A registered resource template. `model` is what `resources/templates/list` shows of it."""

    model: ResourceTemplate
    pattern: UriTemplate
    _reader: Reader

    def plan(self, uri: str) -> Plan | None:
        """How to read the resource of that URI; None when it is not of this family.

        Raises:
            RemoteProtocolError: -32602, a part of the URI is not what the function takes.
        """
        found = self.pattern.match(uri)
        if found is None:
            return None
        try:
            values = self._reader.arguments.bind(dict(found))
        except ValueError as error:
            raise RemoteProtocolError(f"the URI {uri[:128]!r}: {error}", code=INVALID_PARAMS) from None
        return self._reader.plan(uri, values)

    def __repr__(self) -> str:
        return f"<Template {self.model.uri_template}>"


def make_resource(uri: str, function: Function, options: ResourceOptions, threads: ThreadLimiter) -> Resource:
    """A resource from a function without arguments.

    Raises:
        TypeError: it takes arguments.
        ValueError: that is no URI.
    """
    if not is_uri(uri):
        raise ValueError(f"{uri!r} is no URI: it needs a scheme, such as config: or file:")
    reader = make_reader(function, options, threads)
    if taken := argument_names(reader.arguments):
        raise TypeError(f"{uri} has no variables, but its function takes {', '.join(sorted(taken))}")
    model = ResourceModel(
        uri=uri,
        name=name_of(function, options, uri),
        title=options.title,
        description=options.description or function_doc(function),
        mime_type=options.mime_type,
        size=options.size,
        icons=list(options.icons) or None,
        annotations=options.annotations,
        meta=with_questions(options.meta, options.elicits),
    )
    return Resource(model, reader)


def make_template(text: str, function: Function, options: ResourceOptions, threads: ThreadLimiter) -> Template:
    """A resource template from a function that takes its variables.

    Raises:
        TypeError: the function takes other arguments than the template has variables.
        ValueError: that is no RFC 6570 template.
    """
    pattern = UriTemplate(text)
    reader = make_reader(function, options, threads)
    taken, has = argument_names(reader.arguments), set(pattern.variables)
    if taken != has:
        raise TypeError(
            f"{text} has the variables {', '.join(sorted(has))}, but its function takes {', '.join(sorted(taken)) or 'none'}"
        )
    needed = set(cast("list[str]", reader.arguments.schema.get("required", [])))
    if missing := needed.intersection(pattern.optional):
        raise TypeError(f"{text}: a URI may leave out {', '.join(sorted(missing))}, so its parameter needs a default")
    if options.size is not None:
        raise TypeError(f"{text} is a template: it has no size")
    model = ResourceTemplate(
        uri_template=text,
        name=name_of(function, options, text),
        title=options.title,
        description=options.description or function_doc(function),
        mime_type=options.mime_type,
        icons=list(options.icons) or None,
        annotations=options.annotations,
        meta=with_questions(options.meta, options.elicits),
    )
    return Template(model, pattern, reader)


def make_reader(function: Function, options: ResourceOptions, threads: ThreadLimiter) -> Reader:
    arguments = read_arguments(function)
    resume = ResumeMode.REPLAY if options.resume == "auto" else resumed(options.resume, None)
    return Reader(arguments, make_handler(function, arguments.context, threads, options.elicits), options, resume)


def argument_names(arguments: Arguments) -> set[str]:
    properties = arguments.schema.get("properties")
    return set(properties) if isinstance(properties, dict) else set()


def name_of(function: Function, options: ResourceOptions, otherwise: str) -> str:
    return options.name or str(getattr(function, "__name__", "")) or otherwise


def contents(uri: str, value: object, mime_type: str | None) -> list[Contents]:
    """What a resource function returned, as contents: text, bytes (sent as base64), contents, or JSON of anything else."""
    match value:
        case TextResourceContents() | BlobResourceContents():
            return [value]
        case list() | tuple() if value and all(isinstance(item, Contents) for item in value):
            return list(value)
        case str():
            return [TextResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=value)]
        case bytes() | bytearray() | memoryview():
            blob = base64.b64encode(value).decode()
            return [BlobResourceContents(uri=uri, mime_type=mime_type or "application/octet-stream", blob=blob)]
        case None:
            return []
        case _:
            text = said_in_json(value)
            return [TextResourceContents(uri=uri, mime_type=mime_type or "application/json", text=text)]
