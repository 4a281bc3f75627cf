"""What a client signs: assertions that authenticate it (RFC 7523), and DPoP proofs (RFC 9449)."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from ...base.values import JsonValue
from .client_authentication import PrivateKey

KINDS: Final[Mapping[str, type[ECKey | OKPKey | RSAKey]]] = {"ES": ECKey, "RS": RSAKey, "PS": RSAKey, "Ed": OKPKey}
"""The kind of a key, by how the names of its algorithms begin."""


def import_private_key(key: PrivateKey) -> Key:
    """Return a key from its text.

    Raises:
        ValueError: it is no private key for its algorithm. The error does not show it.
    """
    kind = KINDS.get(key.algorithm[:2])
    if kind is None:
        raise ValueError(f"algorithm={key.algorithm!r:.40} is not one of ES256, RS256, PS256, Ed25519 and their like")
    try:
        found = kind.import_key(json.loads(key.text) if key.text.lstrip().startswith("{") else key.text)
        if found.is_private:
            return found
    except (JoseError, ValueError, TypeError):
        pass
    raise ValueError(f"private_key= is not a private key for {key.algorithm} in PEM or as a JWK")


def client_assertion(key: PrivateKey, client_id: str, audience: str, now: float, seconds: int) -> str:
    """Return a JWT that says who the client is (RFC 7523, 3)."""
    claims: dict[str, JsonValue] = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": int(now),
        "exp": int(now) + seconds,
        "jti": secrets.token_urlsafe(16),
    }
    return jwt.encode({"alg": key.algorithm}, claims, import_private_key(key), algorithms=[key.algorithm])
