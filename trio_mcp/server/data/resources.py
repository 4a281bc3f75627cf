"""Resources: a function for one URI, or for all URIs that match a template (RFC 6570), and how `resources/read` runs it."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, cast

from ...base.named_tuples import NamedTuple
from ...errors import RemoteProtocolError, ResourceNotFound
from ...protocol.jsonrpc import INVALID_PARAMS
from ...protocol.uri.matching import UriTemplate
from ...protocol.uri.uris import MAX_URI, ascii_uri, check_uri, is_kept, is_kept_here, is_uri, normal_uri
from ...runtime import ThreadLimiter
from ...runtime.loop_turn import LoopTurn
from ...session import Plan, RequestFacts, ResumeMode
from ...types import (
    Annotations,
    BlobResourceContents,
    CacheScope,
    Model,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource as ResourceModel,
    ResourceTemplate,
    TextResourceContents,
)
from ..access import Access, access_of
from ..branching import BranchTerms
from ..catalog import Catalog
from ..handler import Function, Handler, make_handler
from ..large_results import read_result
from ..mounts import MountPoint, Mounts, inner_uri, mounted_body
from ..options import (
    OfferKeywords,
    check_caching,
    check_listable,
    check_offer,
    listed_members,
    name_for,
    on_its_loop,
    question_keys,
    resume_mode,
)
from ..values.content import check_base64, to_json_text
from ..values.signature import Arguments, signature_arguments

MAX_MATCH_STEPS: Final = 50_000
"""What comparing one URI with all templates may cost: a step for each of its characters and each part of a template that fits."""

Contents = TextResourceContents | BlobResourceContents


class ResourceKeywords(OfferKeywords, total=False):
    """The options of a resource: those of `OfferKeywords`, and these.

    Attributes:
        mime_type: type of the contents; the default depends on the return value: text/plain, application/json or
            application/octet-stream.
        size: size in bytes, if it is known (not for templates).
        annotations: the audience and the importance of the resource.
        ttl: seconds for which a client may cache the contents (2026-07-28); 0 for no caching.
        cache_scope: "public" if the contents are the same for all readers.
    """

    mime_type: str
    size: int
    annotations: Annotations
    ttl: float
    cache_scope: CacheScope


class ResourceReader(NamedTuple):
    """A function that reads a resource, and what is the same for all that it reads.

    Attributes:
        access: who sees and reads it; None for everybody.
        mounts: the servers that it comes through; empty for a resource of the server itself.
    """

    arguments: Arguments
    handler: Handler
    options: ResourceKeywords
    resume: ResumeMode
    access: Access | None = None
    mounts: Mounts = ()

    def plan(self, uri: str, values: dict[str, object]) -> Plan:
        """Return how to read the resource of this URI."""
        own = inner_uri(self.mounts, uri) if self.mounts else uri
        run = partial(self.handler.run, values, partial(self._convert, own))
        body = mounted_body(self.mounts, "resource", uri, {}, run) if self.mounts else run
        return Plan(body, uri, self.options.get("timeout", math.inf), resume=self.resume)

    def mounted(self, mount: MountPoint) -> ResourceReader:
        """Return the reader as the outer server of a mount has it."""
        return self._replace(mounts=(*self.mounts, mount))

    def _convert(self, uri: str, value: object) -> ReadResourceResult:
        options = self.options
        if isinstance(value, ReadResourceResult):
            result = value
        else:
            result = ReadResourceResult(contents=to_contents(uri, value, options.get("mime_type")))
        if not result.contents:  # M-RES-1s: no empty result
            raise ResourceNotFound(uri)
        # Only members that the function left open: a result that it built has precedence over the options.
        hints = {"ttl_ms": round(options.get("ttl", 0) * 1000), "cache_scope": options.get("cache_scope", "private")}
        unset = {name: hint for name, hint in hints.items() if getattr(result, name) is None}
        return result.model_copy(update=unset)


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """A registered resource. `model` is what `resources/list` shows."""

    model: ResourceModel
    reader: ResourceReader

    @property
    def access(self) -> Access | None:
        """Who sees and reads it; None for everybody."""
        return self.reader.access

    @property
    def mounts(self) -> Mounts:
        """The servers that it comes through; empty for a resource of the server itself."""
        return self.reader.mounts

    @property
    def function(self) -> Function:
        """What its author registered."""
        return self.reader.handler.function

    def mounted(self, mount: MountPoint) -> Resource:
        """Return the resource as the outer server of a mount has it. Raises `ValueError` if it can have no URI there."""
        model = self.model.model_copy(update={"uri": mount.outer_uri(self.model.uri)})
        return Resource(model, self.reader.mounted(mount))

    def __repr__(self) -> str:
        return f"<Resource {self.model.uri}>"


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A registered resource template. `model` is what `resources/templates/list` shows."""

    model: ResourceTemplate
    pattern: UriTemplate
    _reader: ResourceReader

    @property
    def access(self) -> Access | None:
        """Who sees it and reads its resources; None for everybody."""
        return self._reader.access

    @property
    def mounts(self) -> Mounts:
        """The servers that it comes through; empty for a template of the server itself."""
        return self._reader.mounts

    @property
    def function(self) -> Function:
        """What its author registered."""
        return self._reader.handler.function

    def mounted(self, mount: MountPoint) -> Template:
        """Return the template as the outer server of a mount has it. Raises `ValueError` if it can have no URI there."""
        text = mount.outer_uri(self.model.uri_template)
        model = self.model.model_copy(update={"uri_template": text})
        return replace(self, model=model, pattern=UriTemplate(normal_uri(text)), _reader=self._reader.mounted(mount))

    def plan(self, uri: str, found: Mapping[str, str]) -> Plan:
        """Return how to read the resource of that URI, of which these values were found.

        Raises:
            RemoteProtocolError: -32602, a part of the URI is not valid for the function.
        """
        try:
            values = self._reader.arguments.bind(dict(found))
        except ValueError as error:
            raise RemoteProtocolError(f"the URI {uri[:128]!r}: {error}", code=INVALID_PARAMS) from None
        return self._reader.plan(uri, values)

    def __repr__(self) -> str:
        return f"<Template {self.model.uri_template}>"


def read_resource(
    resources: Catalog[Resource],
    templates: Catalog[Template],
    reader_of_kept: Callable[[str], ResourceReader | None],
    facts: RequestFacts,
    params: Model,
) -> Plan:
    """Serve `resources/read`: a result that was kept for its caller, a resource, or the first template that matches.

    Args:
        reader_of_kept: see `Registry.reader_of_kept`.

    Raises:
        ResourceNotFound: nothing has that URI.
        RemoteProtocolError: -32602, a part of the URI is not valid for the function; -32600, the caller lacks the scopes.
    """
    assert isinstance(params, ReadResourceRequestParams)
    # Before any template sees it: the time that matching takes grows with the length of the URI.
    check_uri(params.uri)
    if is_kept_here(params.uri):
        return read_result(params.uri)
    resource = resources.find(params.uri)
    if resource is not None:
        check_readable(resource, params.uri, facts)
        return resource.reader.plan(resource.model.uri, {})
    if is_kept(params.uri) and (reader := reader_of_kept(params.uri)) is not None:
        return reader.plan(params.uri, {})
    found = matching_template(templates, params.uri, facts.turn)
    if found is None:
        raise ResourceNotFound(params.uri)
    template, values = found
    check_readable(template, params.uri, facts)
    return template.plan(params.uri, values)


def check_readable(found: Resource | Template, uri: str, facts: RequestFacts) -> None:
    """Raise unless the caller may read a resource.

    Raises:
        ResourceNotFound: it does not see it.
        RemoteProtocolError: -32600, it lacks the scopes.
    """
    # What is hidden is not looked for among the templates: one of them might read the same.
    if (access := found.access) is not None:
        access.check(facts.caller, f"the resource {uri[:128]}", partial(ResourceNotFound, uri))


def check_reading(access_to: Callable[[str, LoopTurn], Access | None], facts: RequestFacts, params: Model) -> None:
    """Check the caller of a request that continues reading; a resource that was removed in the meantime goes on.

    Args:
        access_to: see `Registry.access_to`.
    """
    assert isinstance(params, ReadResourceRequestParams)
    check_uri(params.uri)
    if (access := access_to(params.uri, facts.turn)) is not None:
        access.check(facts.caller, f"the resource {params.uri[:128]}", partial(ResourceNotFound, params.uri))


def matching_template(
    templates: Iterable[Template], uri: str, turn: LoopTurn
) -> tuple[Template, dict[str, str]] | None:
    """Return the first template that matches a URI, as it is spelled or in normal form, and the values that it finds in it.

    None if there is none. Each step counts in the turn of the event loop.

    Raises:
        RemoteProtocolError: -32602, the URI has the form of many templates, none of which accepts its values, and comparing it
            with further ones would take more than `MAX_MATCH_STEPS`.
    """
    encoded = ascii_uri(uri)
    found = None if encoded is None else first_match(templates, encoded, turn)
    if encoded is None or found is not None or (normal := normal_uri(uri)) in (uri, encoded):
        return found
    return first_match(templates, normal, turn)


def first_match(templates: Iterable[Template], encoded: str, turn: LoopTurn) -> tuple[Template, dict[str, str]] | None:
    """Return the first template that matches a URI in this spelling, and its values. Raises as `matching_template` does."""
    steps = 0
    for template in templates:
        needed = template.pattern.steps(encoded)
        steps += needed
        if steps > MAX_MATCH_STEPS:
            raise RemoteProtocolError(
                f"the URI {encoded[:128]!r} costs more than {MAX_MATCH_STEPS} steps to compare with the resource templates",
                code=INVALID_PARAMS,
            )
        turn.spent += needed
        values = template.pattern.match(encoded) if needed else None
        if values is not None:
            return template, values
    return None


def make_resource(uri: str, function: Function, options: ResourceKeywords, threads: ThreadLimiter) -> Resource:
    """Return a resource that a function without arguments reads.

    Raises:
        TypeError: the function takes arguments.
        ValueError: that is not a URI.
    """
    if not is_uri(uri):
        raise ValueError(
            f"{uri[:128]!r} is not a URI: it needs a scheme, such as config: or file:, and {MAX_URI} characters at most"
        )
    reader = make_reader(uri, function, options, threads)
    if names := reader.arguments.names:
        raise TypeError(f"{uri} has no variables, but its function takes {', '.join(sorted(names))}")
    model = ResourceModel(
        uri=uri,
        name=name_for(function, options) or uri,
        mime_type=options.get("mime_type"),
        size=options.get("size"),
        annotations=options.get("annotations"),
        **listed_members(function, options),
    )
    check_listable("resource", uri, model)
    return Resource(model, reader)


def make_template(text: str, function: Function, options: ResourceKeywords, threads: ThreadLimiter) -> Template:
    """Return a resource template that a function with its variables as parameters reads.

    Raises:
        TypeError: the parameters of the function are not the variables of the template.
        ValueError: that is not an RFC 6570 template.
    """
    if not is_uri(text):
        raise ValueError(
            f"{text[:128]!r} is no template of URIs: it needs a scheme that is written out, such as notes://, and {MAX_URI} "
            "characters at most"
        )
    pattern = UriTemplate(normal_uri(text))
    reader = make_reader(text, function, options, threads)
    names, variables = reader.arguments.names, set(pattern.variables)
    if names != variables:
        raise TypeError(
            f"{text} has the variables {', '.join(sorted(variables))}, "
            f"but its function takes {', '.join(sorted(names)) or 'none'}"
        )
    needed = set(cast("list[str]", reader.arguments.schema.get("required", [])))
    # RFC 6570 expands an undefined variable to nothing, so that `{?page}` matches a URI without it.
    if missing := needed.intersection(pattern.optional):
        raise TypeError(f"{text}: a URI may leave out {', '.join(sorted(missing))}, so its parameter needs a default")
    if options.get("size") is not None:
        raise TypeError(f"{text} is a template: it has no size")
    model = ResourceTemplate(
        uri_template=text,
        name=name_for(function, options) or text,
        mime_type=options.get("mime_type"),
        annotations=options.get("annotations"),
        **listed_members(function, options),
    )
    check_listable("resource template", text, model)
    return Template(model, pattern, reader)


def make_reader(name: str, function: Function, options: ResourceKeywords, threads: ThreadLimiter) -> ResourceReader:
    """Return the reader of a resource or a template. Raises `TypeError` or `ValueError` if an option is unknown or wrong."""
    check_offer(options, ResourceKeywords.__optional_keys__, "resource()")
    check_caching("ttl", options.get("ttl", 0), "cache_scope", options.get("cache_scope", "private"))
    arguments = signature_arguments(function)
    handler = make_handler(
        on_its_loop(function, options), arguments.context, threads, BranchTerms(question_keys(options))
    )
    # Reading changes nothing, so that running the function twice is harmless.
    return ResourceReader(arguments, handler, options, resume_mode(options, harmless=True), access_of(name, options))


def to_contents(uri: str, value: object, mime_type: str | None) -> list[Contents]:
    """Return the value of a resource function as contents: text, bytes (sent as base64), contents, or JSON of anything else."""
    match value:
        case TextResourceContents():
            return [value]
        case BlobResourceContents():
            check_base64(value.blob, f"the contents of {value.uri!r:.128}")
            return [value]
        case list() | tuple() if value and all(isinstance(item, Contents) for item in value):
            return [part for item in value for part in to_contents(uri, item, mime_type)]
        case str():
            return [TextResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=value)]
        case bytes() | bytearray() | memoryview():
            blob = base64.b64encode(value).decode()
            return [BlobResourceContents(uri=uri, mime_type=mime_type or "application/octet-stream", blob=blob)]
        case None:
            return []
        case _:
            text = to_json_text(value)
            return [TextResourceContents(uri=uri, mime_type=mime_type or "application/json", text=text)]
