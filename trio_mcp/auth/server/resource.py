"""`ProtectedResource`: a server that says which tokens it needs and where clients get them (RFC 9728)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from types import MappingProxyType
from typing import Final, Literal
from urllib.parse import urlsplit

from ...base.checks import check_str
from ...base.logs import peer_logger
from ...http import HttpRoute
from ...http.authenticator import Authenticator, CredentialsRejected, Move
from ...protocol.strict_json import dumps
from ...session import Caller
from ...session.envelope import check_scopes
from ...types import JsonObject
from ..addresses import is_loopback
from ..uris import RESOURCE_METADATA, canonical, metadata_place, origin, split_url
from .verifier import Verifier, check_issuer, check_verifier

logger = peer_logger("trio_mcp.auth")

OFFLINE_ACCESS: Final = "offline_access"
"""A scope that a client asks for by itself, and no server (M-AUTH-6s)."""


class ProtectedResource(Authenticator):
    """A hook for `authenticate=` that serves the metadata of the server, and names it in its challenges.

        resource = ProtectedResource("https://mcp.example.com/mcp", jwt("https://login.example.com"), required=["notes:read"])
        server = Server("notes", http=HttpOptions(authenticate=resource, allowed_hosts=["mcp.example.com"]))

    Args:
        resource: the public URL of the endpoint, which tokens must be issued for.
        verifier: what verifies tokens: `jwt`, `introspection`, `static`, `any_of` or an `OAuthProxy`.
        scopes: what clients may ask for: a list; "all" for those of all tools, resources and prompts; by default `required`.
        required: the scopes that every request needs.
        implied: the scopes that a scope implies, such as {"admin": ["write"], "write": ["read"]}.
        issuers: where clients get tokens; by default the issuers of the verifier.
        name: of the server, for people.
        documentation: the URL of a page for developers.
        metadata_url: where clients find the metadata, if this server is not to serve it.
        scope_prefix: what scopes begin with where clients ask for them and not in tokens, such as "api://notes/" for Entra.

    Raises:
        TypeError, ValueError: an argument is invalid; the error says what to write.
    """

    def __init__(
        self,
        resource: str,
        verifier: Verifier,
        *,
        scopes: Sequence[str] | Literal["all"] = (),
        required: Sequence[str] = (),
        implied: Mapping[str, Sequence[str]] = MappingProxyType({}),
        issuers: Sequence[str] | None = None,
        name: str | None = None,
        documentation: str | None = None,
        metadata_url: str | None = None,
        scope_prefix: str = "",
    ) -> None:
        self.resource = check_resource(resource)
        check_verifier("verifier", verifier)
        self._prefix = check_str("scope_prefix", scope_prefix)
        check_scopes("scope_prefix", [scope_prefix] if scope_prefix else ())
        self._implied = {scope: check_scopes(f"implied[{scope!r}]", more) for scope, more in implied.items()}
        self._required = _without_offline("required", required)
        self._given = frozenset[str]() if scopes == "all" else _without_offline("scopes", scopes)
        self._scopes = None if scopes == "all" else self._given or self._required
        self._verifier = verifier.bound(resource, self._complete)
        self._issuers = [*self._verifier.issuers] if issuers is None else [*map(check_issuer, _listed(issuers))]
        more = {"resource_name": name, "resource_documentation": documentation}
        self._more: JsonObject = {key: check_str(key, value) for key, value in more.items() if value is not None}
        if metadata_url is not None:
            split_url(check_str("metadata_url", metadata_url))
        self._metadata_url = metadata_url

    async def __call__(self, headers: Mapping[str, str]) -> Caller | None:
        """Return the caller of a request; see `Authenticator`."""
        caller = await self._verifier(headers)
        return None if caller is None else self._checked(caller)

    def known(self, headers: Mapping[str, str]) -> Caller | None:
        """See `Authenticator`."""
        caller = self._verifier.known(headers)
        return caller if caller is not None and self._required <= caller.scopes else None

    @property
    def public_url(self) -> str | None:
        """See `Authenticator`."""
        return self.resource

    @property
    def required(self) -> frozenset[str]:
        """See `Authenticator`."""
        return self._required

    def admitted(self, caller: Caller) -> Caller:
        """See `Authenticator`."""
        return self._checked(self._complete(caller))

    def _checked(self, caller: Caller) -> Caller:
        if not self._required <= caller.scopes:
            raise CredentialsRejected(403, "insufficient_scope", "the token lacks a required scope", self._required)
        return caller

    def with_functions(self, move: Move) -> ProtectedResource:
        """See `Authenticator`."""
        moved = copy(self)
        moved._verifier = self._verifier.with_functions(move)  # noqa: SLF001  a copy of this
        return moved

    def check(self) -> None:
        """See `Authenticator`."""
        self._verifier.check()

    def check_endpoints(self, endpoints: Collection[str], scopes: Collection[str], root: str = "") -> None:
        """See `Authenticator`; a scope of a tool that clients cannot learn of is a warning."""
        path = urlsplit(self.resource).path
        places = [root + endpoint for endpoint in endpoints]
        # Without a known prefix any may be in front of it: a proxy adds that.
        fits = path.rstrip("/").endswith if not root else path.rstrip("/").__eq__
        if not any(fits(place.rstrip("/")) for place in places):
            how = "root_path= is the prefix" if root else f"or serve it with path={path or '/'!r}"
            raise ValueError(
                f"the resource {self.resource!r} is not where the server is: write the public URL of its endpoint, such as "
                f"{origin(self.resource) + places[0]!r}; {how}"
            )
        missing = set(scopes) - self._given
        if self._given and missing:
            logger.warning(
                'scopes= of the resource lacks %s, which tools, resources or prompts need: add them, or write scopes="all"',
                ", ".join(sorted(missing)),
            )

    async def prepare(self) -> None:
        """Fetch the keys of the issuers."""
        await self._verifier.prepare()

    def background(self) -> AbstractAsyncContextManager[None]:
        """See `Authenticator`."""
        return self._verifier.background()

    def challenge(self, error: str = "", scopes: Collection[str] = (), root: str = "") -> Mapping[str, str]:
        """See `Authenticator`. Every request needs `required`: a client that asks for these scopes alone must not lose others."""
        named = self._required.union(scopes)
        parameters = super().challenge(error, () if error == "invalid_request" else self._written(named))
        url = self._metadata_at(root)
        return {**parameters, "resource_metadata": url} if url else parameters

    def documents(self, scopes: Collection[str]) -> Mapping[str, bytes]:
        """Return the metadata at the path of the resource and at the root, unless it is elsewhere, or there is no issuer.

        What the verifier publishes comes after it.
        """
        supported = self._offered(scopes)
        more = self._verifier.documents(supported)
        if self._metadata_url is not None or not self._issuers:
            return more
        document: JsonObject = {
            "resource": self.resource,
            "authorization_servers": [*self._issuers],
            **({"scopes_supported": [*supported]} if supported else {}),
            "bearer_methods_supported": ["header"],
            **self._more,
        }
        return {**dict.fromkeys((metadata_place(self.resource), RESOURCE_METADATA), dumps(document)), **more}

    def routes(self, endpoints: Collection[str], scopes: Callable[[], Collection[str]]) -> Sequence[HttpRoute]:
        """Return the routes of a verifier that issues tokens, below the endpoint that is the resource."""
        path = urlsplit(self.resource).path.rstrip("/")
        fitting = [each for each in endpoints if path.endswith(each.rstrip("/"))]
        offered, required = (lambda: self._offered(scopes())), self._written(self._required)
        return self._verifier.authorization_routes(max(fitting, key=len, default="/"), offered, required)

    def _offered(self, scopes: Collection[str]) -> list[str]:
        """Return what clients may ask for.

        Args:
            scopes: those of the tools, resources and prompts.
        """
        return self._written(self._required | set(scopes) if self._scopes is None else self._scopes)

    def _metadata_at(self, root: str) -> str | None:
        if self._metadata_url is not None or not self._issuers:
            return self._metadata_url
        # A proxy that publishes a prefix forwards nothing outside of it.
        place = root + RESOURCE_METADATA if root else metadata_place(self.resource)
        return origin(self.resource) + place

    def _written(self, scopes: Collection[str]) -> list[str]:
        return [self._prefix + scope for scope in sorted(scopes)]

    def _complete(self, caller: Caller) -> Caller:
        """Return a caller with the scopes that its own imply, without the prefix."""
        had = {scope.removeprefix(self._prefix) for scope in caller.scopes}
        found, waiting = set(had), [*had]
        while waiting:
            more = self._implied.get(waiting.pop(), frozenset()) - found
            found |= more
            waiting += more
        return caller if found == caller.scopes else Caller(caller.principal, found, caller.claims)

    def __repr__(self) -> str:
        return f"ProtectedResource({self.resource!r}, {self._verifier!r})"


def check_resource(resource: object) -> str:
    """Return the URI of a resource if it is canonical, and https or on this machine. Raises `TypeError`, `ValueError`."""
    url = check_str("resource", resource)
    form = canonical(url)
    if url != form:
        raise ValueError(f"resource: tokens are issued for its canonical form; write {form!r}")
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ValueError(f"resource: {url!r:.200} must begin with https://, unless it is on this machine")
    return url


def _without_offline(name: str, scopes: object) -> frozenset[str]:
    checked = check_scopes(name, scopes)
    if OFFLINE_ACCESS in checked:
        raise ValueError(f"{name}: leave {OFFLINE_ACCESS} out: clients ask for it by themselves")
    return checked


def _listed(issuers: object) -> Sequence[str]:
    if isinstance(issuers, str) or not isinstance(issuers, Sequence):
        raise TypeError('issuers must be a list, such as ["https://login.example.com"]')
    return issuers
