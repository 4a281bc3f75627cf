"""`TestIssuer`: access tokens for tests, signed in this process; no provider runs, and nothing listens."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final, TypeAlias, cast

from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from ..base.checks import check_choice
from ..types import JsonObject, JsonValue

PrivateKey: TypeAlias = RSAKey | ECKey | OKPKey

_MAKERS: Final[Mapping[str, Callable[[], PrivateKey]]] = {
    "RS256": partial(RSAKey.generate_key, 2048),
    "ES256": partial(ECKey.generate_key, "P-256"),
    "Ed25519": partial(OKPKey.generate_key, "Ed25519"),
}


class TestIssuer:
    """Issues access tokens that the verifier `jwt` accepts.

        issuer = TestIssuer()
        hook = ProtectedResource("http://127.0.0.1:8000/mcp", jwt(issuer.url, keys=issuer.jwks))
        token = issuer.token("alice", scopes=["notes:read"], audience="http://127.0.0.1:8000/mcp")

    Args:
        url: what tokens name as their issuer; nothing is requested from there.
        algorithm: "ES256", "RS256" or "Ed25519".
    """

    __test__ = False  # pytest collects classes with such a name

    def __init__(self, url: str = "https://issuer.test", *, algorithm: str = "ES256") -> None:
        self.url = url
        self._algorithm = check_choice("algorithm", algorithm, [*_MAKERS])
        self._numbers = count()
        self.rotate()

    @property
    def jwks(self) -> JsonObject:
        """The public key, as a JWK set."""
        public = cast("JsonObject", self._key.as_dict(private=False))
        return {"keys": [{**public, "kid": self._kid, "alg": self._algorithm, "use": "sig"}]}

    def rotate(self) -> None:
        """Sign later tokens with another key, which replaces that in `jwks`."""
        self._key = _MAKERS[self._algorithm]()
        self._kid = f"key-{next(self._numbers)}"

    def token(
        self,
        principal: str,
        *,
        audience: str | Sequence[str],
        scopes: Sequence[str] = (),
        expires_in: float = 60.0,
        claims: dict[str, JsonValue] | None = None,
        header: dict[str, JsonValue] | None = None,
    ) -> str:
        """Return an access token.

        Args:
            principal: the claim `sub`.
            audience: whom it is for, such as the URL of the server.
            scopes: what its bearer may do.
            expires_in: seconds; a negative number makes one that has expired.
            claims: more of them; they replace the others, and None removes one.
            header: more members of its header, likewise.
        """
        now = time.time()
        made: dict[str, JsonValue] = {
            "iss": self.url,
            "sub": principal,
            "aud": audience if isinstance(audience, str) else [*audience],
            "exp": now + expires_in,
            "iat": now,
            "scope": " ".join(scopes),
            **(claims or {}),
        }
        head: dict[str, JsonValue] = {"alg": self._algorithm, "kid": self._kid, "typ": "at+jwt", **(header or {})}
        kept = {name: value for name, value in made.items() if value is not None}
        shown = {name: value for name, value in head.items() if value is not None}
        registry = JWSRegistry(algorithms=[*JWSRegistry.algorithms], strict_check_header=False)
        return jwt.encode(shown, kept, self._key, registry=registry, default_type=None)

    def __repr__(self) -> str:
        return f"TestIssuer({self.url!r})"
