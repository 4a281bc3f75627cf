"""What the routes of an `OAuthProxy` share: what it issues tokens for, and to whom."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from ...types import JsonObject
from ..uris import canonical
from .clients import Clients
from .rejections import Rejected
from .sealed import Box
from .upstream import Upstream

User: TypeAlias = tuple[str, JsonObject]
"""The principal of a user, and the claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """The issuer of tokens for one resource.

    Attributes:
        resource: its URI, which is that of the issuer, too.
        box: seals what is handed out.
        clients: registers and finds clients.
        upstream: makes the requests to the provider.
        offered: returns the scopes that clients may ask for.
        required: those that each token has.
        user: returns the user of an access token of the provider. Raises `Rejected`.
        shows_upstream: whether tools get that access token.
    """

    resource: str
    box: Box
    clients: Clients
    upstream: Upstream
    offered: Callable[[], Collection[str]]
    required: Collection[str]
    user: Callable[[str], Awaitable[User]]
    shows_upstream: bool

    @property
    def scopes(self) -> frozenset[str]:
        """Those that a token may have."""
        return frozenset(self.offered()) | frozenset(self.required)

    def granted(self, asked: str) -> tuple[str, ...]:
        """Return those of the scopes that are offered, and the required ones."""
        return tuple(sorted(self.scopes & frozenset(asked.split(" ")) | frozenset(self.required)))

    def check_resource(self, named: str | None) -> None:
        """Raise `Rejected` if a request names another resource (RFC 8707, 2; L-AUTH-7c)."""
        try:
            fits = named is None or canonical(named) == self.resource
        except ValueError:
            fits = False
        if not fits:
            raise Rejected(f"the resource is {self.resource}, and no other", "invalid_target")
