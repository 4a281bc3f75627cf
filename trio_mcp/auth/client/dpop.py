"""DPoP: tokens that are bound to a key, and proofs that the sender of a request has it (RFC 9449)."""

from __future__ import annotations

import hashlib
import json
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey

from ...base.values import JsonValue
from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from ..uris import origin

ALGORITHM: Final = "ES256"
MAX_NONCE: Final = 512
"""Characters of a nonce of a server."""


class Proofs:
    """Makes proofs with one key, and keeps the nonces that servers want in them.

    Args:
        key: the text of `Proofs.key`; None for a new key.

    Raises:
        AuthorizationError: it is not such a text.
    """

    def __init__(self, key: str | None = None) -> None:
        self._key = ECKey.generate_key("P-256", private=True) if key is None else import_key(key)
        self._nonces: dict[str, str] = {}
        """By origin."""

    @property
    def key(self) -> str:
        """The private key as a JWK, to be stored."""
        return json.dumps(self._key.as_dict(private=True))

    def proof(self, method: str, url: str, now: float, token: str | None = None) -> str:
        """Return a proof for one request.

        Args:
            token: the access token that the request has.
        """
        parts = urlsplit(url)
        claims: dict[str, JsonValue] = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            # Without query and fragment (RFC 9449, 4.2).
            "htu": f"{parts.scheme}://{parts.netloc}{parts.path}",
            "iat": int(now),
        }
        if token is not None:
            digest = hashlib.sha256(token.encode()).digest()
            claims["ath"] = urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (nonce := self._nonces.get(origin(url))) is not None:
            claims["nonce"] = nonce
        header: dict[str, object] = {"alg": ALGORITHM, "typ": "dpop+jwt", "jwk": self._key.as_dict(private=False)}
        return jwt.encode(header, claims, self._key, algorithms=[ALGORITHM])

    def learn(self, url: str, headers: Mapping[str, str]) -> bool:
        """Keep the nonce in the headers of a response, and return whether it is a new one."""
        nonce, place = headers.get("dpop-nonce"), origin(url)
        if not nonce or len(nonce) > MAX_NONCE or self._nonces.get(place) == nonce:
            return False
        self._nonces[place] = nonce
        return True

    def __repr__(self) -> str:
        return "<Proofs>"


def import_key(text: str) -> ECKey:
    """Return a stored key. Raises `AuthorizationError`, which does not show it."""
    try:
        return ECKey.import_key(json.loads(text))
    except (JoseError, ValueError, TypeError, KeyError):
        pass
    raise AuthorizationError("the stored key for DPoP is malformed: log in again", kind=Kind.STORE)
