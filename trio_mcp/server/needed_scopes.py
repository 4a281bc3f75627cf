"""The scopes that a request needs, for a transport that rejects one before it is decoded (`Service.missing_scopes`).

All scopes of the operation are in one challenge (M-AUTH-6s), so that a client logs in once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ..protocol.jsonrpc import Request
from ..protocol.uri.uris import MAX_URI
from ..runtime.loop_turn import LoopTurn
from ..session import Caller
from ..session.service import MissingScopes
from ..types import JsonObject, JsonValue
from .access import Access, Restrictable
from .catalog import Catalog
from .registry import Registry

if TYPE_CHECKING:
    from .tools.search import SearchedTools

T = TypeVar("T", bound=Restrictable)

NO_SCOPES: Final[frozenset[str]] = frozenset()


def missing_scopes_of(registry: Registry, search: SearchedTools | None) -> MissingScopes:
    """Return the function that finds the scopes that a request lacks.

    Args:
        search: takes the place of the list of tools.
    """
    if search is None:
        return partial(missing_scopes, registry)
    return lambda request, caller: missing_scopes(registry, search.resolved(request), caller)


def missing_scopes(registry: Registry, request: Request, caller: Callable[[], Caller | None]) -> frozenset[str]:
    """Return all scopes that a request needs, if it is about something visible and its caller lacks one of them."""
    params = request.params
    accesses: Sequence[Access] = ()
    if not isinstance(params, dict):
        return NO_SCOPES
    # Nearly every request is a call of a tool that anybody may call.
    if request.method == "tools/call":
        name = params.get("name")
        tool = registry.tools.by_key.get(name) if isinstance(name, str) else None
        accesses = () if tool is None or tool.access is None else (tool.access,)
    elif request.method in ACCESSES:
        accesses = ACCESSES[request.method](registry, params)
    if not accesses:
        return NO_SCOPES
    found = caller()
    visible = [access for access in accesses if not access.hides_from(found)]
    if not any(access.lacks_scopes(found) for access in visible):
        return NO_SCOPES
    return NO_SCOPES.union(*(access.scopes for access in visible))


def accesses_of_prompt(registry: Registry, params: JsonObject) -> Sequence[Access]:
    return with_access(registry.prompts, params.get("name"))


def accesses_of_resource(registry: Registry, params: JsonObject) -> Sequence[Access]:
    uri = params.get("uri")
    access = registry.access_to(uri, LoopTurn()) if isinstance(uri, str) and len(uri) <= MAX_URI else None
    return () if access is None else (access,)


def accesses_of_reference(registry: Registry, params: JsonObject) -> Sequence[Access]:
    ref = params.get("ref")
    if not isinstance(ref, dict):
        return ()
    if ref.get("type") == "ref/prompt":
        return accesses_of_prompt(registry, ref)
    # Some clients send the template, others a URI that is expanded so far.
    return with_access(registry.templates, ref.get("uri")) or accesses_of_resource(registry, ref)


def accesses_of_filter(registry: Registry, params: JsonObject) -> Sequence[Access]:
    wanted = params.get("notifications")
    uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
    found = (accesses_of_resource(registry, {"uri": uri}) for uri in (uris if isinstance(uris, list) else ()))
    return [access for accesses in found for access in accesses]


def with_access(catalog: Catalog[T], key: JsonValue) -> Sequence[Access]:
    item = catalog.find(key) if isinstance(key, str) else None
    return () if item is None or item.access is None else (item.access,)


ACCESSES: Final[Mapping[str, Callable[[Registry, JsonObject], Sequence[Access]]]] = {
    "prompts/get": accesses_of_prompt,
    "completion/complete": accesses_of_reference,
    "resources/read": accesses_of_resource,
    "resources/subscribe": accesses_of_resource,
    "subscriptions/listen": accesses_of_filter,
}
"""Returns the restrictions of what a request is about, by method."""
