"""The values that an `OAuthProxy` hands out in place of storing them.

| value | who has it | for |
|---|---|---|
| `Client` | the client, as its client id | 90 days |
| `Ticket` | the consent page | 10 minutes |
| `State` | the provider, as `state` | 10 minutes |
| `Code` | the client, as its authorization code | 60 seconds |
| `Access` | the client, as its access token | 1 hour at most |
| `Refresh` | the client, as its refresh token | 30 days |

Each is encrypted and authenticated, with its kind, the resource and the provider as its place: one kind does not stand for
another, nor does a value of another server with the same keys, or of the same server before it had another provider.
"""

from __future__ import annotations

import secrets
import time
from hashlib import sha256
from typing import ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import override

from ...protocol.sealing.at_rest import Unsealable, Vault
from ...protocol.sealing.request_state import KeyRing, from_base64url, to_base64url
from ...types import JsonValue

_PURPOSE: Final = "trio_mcp oauth proxy v1"


class Value(BaseModel):
    """A sealed value. Its repr shows nothing of it.

    Attributes:
        expires: when it can no longer be used, in seconds since 1970.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)
    LIFETIME: ClassVar[int]
    """Seconds for which it can be used, unless `expires` is given."""

    expires: int = 0

    @override
    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    __str__ = __repr__


class Client(Value):
    """A registered client."""

    LIFETIME = 90 * 86_400

    name: str
    redirect_uris: tuple[str, ...]


class Login(Value):
    """A login that has begun.

    Attributes:
        redirect_uri: where the browser goes at its end.
        state: of the client, which gets it back.
        scopes: those to grant.
        binding: digest of what the client must show to get tokens; see `binding`.
        browser: digest of the cookie of the browser.
    """

    LIFETIME = 600

    redirect_uri: str
    state: str | None
    scopes: tuple[str, ...]
    binding: str
    browser: str


class Ticket(Login):
    """A login to which the user has not agreed yet."""


class State(Login):
    """A login for which the user was sent to the provider.

    Attributes:
        verifier: of our code challenge there.
    """

    verifier: str


class Code(Value):
    """A login that the provider has confirmed.

    Its code is redeemed when the client redeems ours: so ours can be used once, too.
    """

    LIFETIME = 60

    scopes: tuple[str, ...]
    binding: str
    code: str
    verifier: str


class Access(Value):
    """An access token."""

    LIFETIME = 3600

    principal: str
    scopes: tuple[str, ...]
    claims: dict[str, JsonValue]


class Refresh(Value):
    """A refresh token.

    Attributes:
        client: digest of the client id.
        principal: of the user, which stays the same.
        refresh: the refresh token of the provider; None if it has none, and its access token does not expire.
        access: that access token.
    """

    LIFETIME = 30 * 86_400

    client: str
    principal: str
    scopes: tuple[str, ...]
    refresh: str | None
    access: str | None


V = TypeVar("V", bound=Value)


class Box:
    """Seals and opens values.

    Args:
        ring: the keys. The first seals, all of them open.
        audience: for which they are sealed: the resource, the provider, and the client there.
    """

    def __init__(self, ring: KeyRing, audience: str) -> None:
        self._vault = Vault(ring, _PURPOSE)
        self._audience = audience

    def seal(self, value: Value) -> str:
        """Return a value as text, in the characters of base64url."""
        expires = value.expires or int(time.time()) + value.LIFETIME
        plain = value.model_copy(update={"expires": expires}).model_dump_json().encode()
        return to_base64url(self._vault.seal(plain, self._place(type(value))))

    def open(self, kind: type[V], text: str | None) -> V | None:
        """Return a value; None for a text that is none of this kind, was changed, or has expired."""
        sealed = from_base64url(text) if text else None
        if sealed is None:
            return None
        try:
            value = kind.model_validate_json(self._vault.open(sealed, self._place(kind)))
        except (Unsealable, ValidationError):
            return None
        return value if value.expires > time.time() else None

    def _place(self, kind: type[Value]) -> bytes:
        return f"{kind.__name__} {self._audience}".encode()


def digest(*texts: str) -> str:
    """Return a digest of texts; what separates them is in none of them."""
    return to_base64url(sha256("\0".join(texts).encode()).digest())


def is_same(one: str, other: str) -> bool:
    """Return whether two digests are the same, in a time that does not show where they differ."""
    return secrets.compare_digest(one.encode(), other.encode())
