"""Who sends a request, as the author's `authenticate` has found out."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, cast

from pydantic_core import from_json

from ..checks import check_str, mistake
from ..protocol.strict_json import dumps
from ..types import JsonObject, JsonValue

MAX_PRINCIPAL: Final = 1024
"""Characters of a principal: sessions, calls and their states carry it along."""
MAX_SCOPES: Final = 256
MAX_CLAIMS: Final = 16 * 1024
"""Bytes of the claims as JSON: each running call keeps those of its request."""

SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")
"""A scope token (RFC 6749, 3.3); longer ones are of no use in a header."""


class Caller:
    """An authenticated caller; `authenticate=` returns one. It cannot be changed.

    Everything that belongs to a caller (sessions, `requestState`s, limits) belongs to the principal. Scopes and claims are those
    of one request.

    Args:
        principal: names the caller, in 1 to 1,024 characters.
        scopes: what the caller may do, such as `["books:read"]`: at most 256 scope tokens of OAuth.
        claims: anything else that tools need to know, such as the claims of a token: a JSON object of at most 16 KiB.

    Raises:
        TypeError, ValueError: an argument is none of that.
    """

    __slots__ = ("_claims", "principal", "scopes")

    principal: str
    scopes: frozenset[str]
    _claims: bytes

    def __init__(
        self, principal: str, scopes: Collection[str] = (), claims: Mapping[str, JsonValue] | None = None
    ) -> None:
        object.__setattr__(self, "principal", check_principal(principal))
        object.__setattr__(self, "scopes", check_scopes("scopes", scopes))
        object.__setattr__(self, "_claims", b"{}" if claims is None else encode_claims(claims))

    @property
    def claims(self) -> JsonObject:
        """A copy of the claims; decoded each time it is read."""
        return cast("JsonObject", from_json(self._claims))

    @property
    def size(self) -> int:
        """Bytes of memory that a call draws from the memory budget for it."""
        return len(self.principal) + len(self._claims) + sum(map(len, self.scopes))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Caller cannot be changed: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Caller cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Caller) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple[str, frozenset[str], bytes]:
        return self.principal, self.scopes, self._claims

    def __repr__(self) -> str:
        # Without the claims, which may be secret.
        return f"Caller({self.principal!r}, scopes={sorted(self.scopes)})"


def caller_of(principal: str | None, known: Caller | None) -> Caller | None:
    """Return the caller that is known, or else one that has only a principal; None without a principal."""
    # Made when it is asked for: most servers need the principal only, and most tools not even that.
    return Caller(principal) if known is None and principal is not None else known


def check_principal(principal: object) -> str:
    """Return a principal if it is text that keys, digests and sealed states can hold."""
    name = check_str("principal", principal)
    # They are bytes. A lone surrogate cannot be encoded.
    name.encode()
    if not 0 < len(name) <= MAX_PRINCIPAL:
        raise ValueError(f"the principal has {len(name)} characters; 1 to {MAX_PRINCIPAL} are allowed")
    return name


def check_scopes(name: str, scopes: object) -> frozenset[str]:
    """Return scopes if they are a collection of scope tokens."""
    # A string is a collection of letters, each of which would be a scope.
    if isinstance(scopes, str) or not isinstance(scopes, Collection):
        raise TypeError(mistake(name, 'a list of scopes, such as ["books:read"]', scopes))
    if len(scopes) > MAX_SCOPES:
        raise ValueError(f"{name}: {len(scopes)} scopes; {MAX_SCOPES} are allowed")
    for scope in scopes:
        if not SCOPE.fullmatch(check_str(f"each of {name}", scope)):
            raise ValueError(
                f"{name}: {scope!r:.80} is no scope: 1 to 256 ASCII characters without spaces, quotes and backslashes"
            )
    return frozenset(cast("Collection[str]", scopes))


def encode_claims(claims: object) -> bytes:
    """Return claims as JSON, if they are a JSON object that is not too large."""
    if not isinstance(claims, Mapping):
        raise TypeError(mistake("claims", 'a JSON object, such as {"team": "blue"}', claims))
    data = dumps(dict(cast("Mapping[str, JsonValue]", claims)), "claims")
    if len(data) > MAX_CLAIMS:
        raise ValueError(f"the claims have {len(data)} bytes as JSON; {MAX_CLAIMS} are allowed")
    return data
