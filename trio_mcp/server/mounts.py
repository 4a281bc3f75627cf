"""One server in another: how its items are called there, and how their calls run with what belongs to their own server."""

# A call of a mounted item runs the layers of each server on the way to it, and each of these sees the call with the name and the
# services of that server. A tool "find" of the server `notes`, which is mounted as "n" in `desk`, which is mounted as "d" in
# `all`, is called as "d_n_find":
#
#   what runs                 sees the name     and the services of
#   middleware of `all`       d_n_find          `all`
#   middleware of `desk`      n_find            `desk`
#   middleware of `notes`     find              `notes`
#   the body                                    `notes`
#
# The services of a call are those of the process (actors, limits, tasks, kept results), apart from what a server has for itself:
# its lifespan's state, its model, its tools, and the routes for what its handlers read.

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar, cast

from ..errors import ResourceNotFound
from ..protocol.uri.namespaces import PREFIX, Namespace
from ..protocol.uri.uris import MAX_URI, is_kept
from ..runtime import Actor, Lane
from ..session import Call
from ..session.calls.services import CallOffers
from ..types import (
    CallToolResult,
    EmbeddedResource,
    GetPromptResult,
    JsonValue,
    Model,
    ReadResourceResult,
    ResourceLink,
)
from .branching import BranchTerms
from .large_results import with_kept_links
from .middleware import CallKind, CallMiddleware, CallTarget, run_layers

T = TypeVar("T")
B = TypeVar("B")

SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

LAYERS_OF_SERVER: Final = 1000
"""Numbers of layers for the middleware of each server, so that runs of the body by two of them have different numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class MountPoint(Namespace):
    """Where a server is mounted in another one, and the names that its items have there.

    Attributes:
        server: the mounted server, which is the key of its services.
        name: of that server.
        layers: its middleware, the outermost first.
        offers: returns whether it has a resource of this URI.
        keeps: returns whether a result of this URI is kept behind a proxy, and not by the outermost server.
        fulfilled: the client capabilities that its tools need not require, because the outer server has them.
    """

    server: object
    name: str
    layers: Sequence[CallMiddleware]
    offers: Callable[[str], bool]
    keeps: Callable[[str], bool]
    fulfilled: frozenset[str]

    @property
    def source(self) -> str:
        """The mounted server, for errors."""
        return source_of((self,))

    def outer_uri(self, uri: str, /) -> str:
        """Return the URI, or the template, in the outer server: `notes://today` becomes `notes://prefix/today`.

        Raises:
            ValueError: it has no scheme that is written out, or is too long with the prefix.
        """
        if SCHEME.match(uri) is None:
            raise ValueError(
                f"{uri[:128]!r} of {self.source} cannot be mounted: it has to begin with a scheme that is written out, such as "
                "notes://"
            )
        found = super(MountPoint, self).outer_uri(uri)
        if len(found) > MAX_URI:
            raise ValueError(f"{uri[:128]!r} of {self.source} is longer than {MAX_URI} characters with its prefix")
        return found


def check_prefix(prefix: str) -> None:
    """Raise `ValueError` for a prefix with which no server can be mounted."""
    if PREFIX.fullmatch(prefix) is None:
        raise ValueError(
            f"{prefix[:80]!r} is no prefix: 1 to 64 letters, digits, '_', '-' and '.'; the first is a letter or a digit"
        )


Mounts = tuple[MountPoint, ...]
"""The servers that an item comes through, the one that registered it first."""


def source_of(mounts: Mounts) -> str:
    """Return the server that registered an item, for errors, and where it is mounted in the outermost one."""
    prefix = "_".join(mount.prefix for mount in reversed(mounts))
    return f"the server {mounts[0].name!r} (mounted as {prefix!r})"


class MountedCall(Generic[B]):
    """A call as the handlers of a mounted server see it: with the services of their server.

    Attributes:
        depth: how many servers are round theirs.
    """

    __slots__ = ("_call", "depth", "offers")

    def __init__(self, call: Call, offers: CallOffers) -> None:
        self._call = call
        self.offers = offers
        self.depth: int = getattr(call, "depth", 0) + 1

    def __getattr__(self, name: str) -> object:
        return getattr(self._call, name)

    def __repr__(self) -> str:
        return repr(self._call)


@dataclass(frozen=True, slots=True)
class MountedBody:
    """The body of a call as the outer server runs it.

    Attributes:
        run: the body as the mounted server runs it, without its middleware.
        target: what is called, as the mounted server names it; None for what has no middleware, such as a completion.
    """

    mount: MountPoint
    run: Callable[..., Awaitable[Model]]
    target: CallTarget | None

    async def __call__(self, call: Call, place: Actor | Lane, *parent: BranchTerms) -> Model:
        """Run the body inside of the middleware of its server; return its result with the URIs of the outer server.

        Args:
            parent: the terms of the handler that runs it, if one does.
        """
        mount, target = self.mount, self.target
        mounted: MountedCall[Model] = MountedCall(call, call.offers.mounted[mount.server])
        # All that a handler does with its call is in `MountedCall`: it reads its members, and sets none.
        view = cast("Call", mounted)
        layers = tuple(mount.layers) if target is not None else ()
        try:
            if target is None or not layers:
                result = await self.run(view, place, *parent)
            else:
                first = mounted.depth * LAYERS_OF_SERVER
                result = await run_layers(layers, target, self.run, view, place, *parent, first=first)
        except ResourceNotFound as error:
            outer = self._outer_uri_of(error)
            if outer is None:
                raise
            not_found = ResourceNotFound(outer)
        else:
            return outward(mount, result)
        try:
            raise not_found
        finally:
            # Its traceback holds this frame.
            del not_found

    def _outer_uri_of(self, error: ResourceNotFound) -> str | None:
        """Return the URI for the outer server, if the resource that was read is the one that does not exist."""
        target = self.target
        if target is None or target.kind != "resource" or error.uri != target.name:
            return None
        return self.mount.outer_uri(error.uri)


def mounted_body(
    mounts: Mounts,
    kind: CallKind | None,
    name: str,
    arguments: Mapping[str, JsonValue],
    run: Callable[..., Awaitable[T]],
) -> Callable[..., Awaitable[T]]:
    """Return the body of an item as the outermost server runs it.

    Args:
        kind: of the call; None for one without middleware.
        name: what the outermost server calls the item: its name, or its URI.
    """
    names = [name]
    for mount in reversed(mounts):
        names.append(inner(mount, kind, names[-1]))
    body = cast("Callable[..., Awaitable[Model]]", run)
    for mount, own in zip(mounts, reversed(names), strict=False):
        body = MountedBody(mount, body, None if kind is None else CallTarget(kind, own, arguments))
    return cast("Callable[..., Awaitable[T]]", body)


def inner(mount: MountPoint, kind: CallKind | None, name: str) -> str:
    if kind == "resource":
        return mount.own_uri(name) or name
    return mount.own_name(name) or name


def inner_uri(mounts: Mounts, uri: str) -> str:
    """Return the URI in the server that registered a resource; `uri` is that in the outermost one."""
    for mount in reversed(mounts):
        uri = mount.own_uri(uri) or uri
    return uri


def outward(mount: MountPoint, result: Model) -> Model:
    """Return a result of a mounted server with the URIs that its resources have in the outer one."""
    match result:
        case ReadResourceResult(contents=contents):
            moved = with_items(result, "contents", [outer_item(mount, part) for part in contents], contents)
            return with_kept_links(moved, partial(outer_kept, mount))
        case CallToolResult(content=content):
            moved = with_items(result, "content", [outer_block(mount, block) for block in content], content)
            return with_kept_links(moved, partial(outer_kept, mount))
        case GetPromptResult(messages=messages):
            outer = []
            for message in messages:
                block = outer_block(mount, message.content)
                outer.append(message if block is message.content else message.model_copy(update={"content": block}))
            return with_items(result, "messages", outer, messages)
        case _:
            return result


def with_items(result: Model, member: str, items: Sequence[object], before: Sequence[object]) -> Model:
    """Return a result with other items; the same one if they are the same."""
    if all(item is old for item, old in zip(items, before, strict=True)):
        return result
    return result.model_copy(update={member: items})


def outer_block(mount: MountPoint, block: B) -> B:
    """Return a content block with the URI of the outer server, if it refers to a resource of the mounted one."""
    match block:
        case ResourceLink():
            return outer_item(mount, block)
        case EmbeddedResource(resource=resource):
            moved = outer_item(mount, resource)
            return block if moved is resource else block.model_copy(update={"resource": moved})
        case _:
            return block


def outer_item(mount: MountPoint, item: B) -> B:
    """Return what has a URI with that of the outer server, if the mounted one has a resource there."""
    uri = getattr(item, "uri", "")
    if is_kept(uri) or not mount.offers(uri):
        return item
    return cast("B", cast("Model", item).model_copy(update={"uri": mount.outer_uri(uri)}))


def outer_kept(mount: MountPoint, uri: str) -> str:
    """Return the URI in the outer server of a result that was kept; the same one if the two servers keep theirs together."""
    return mount.outer_uri(uri) if mount.keeps(uri) else uri
