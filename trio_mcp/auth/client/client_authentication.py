"""How a client authenticates at a token endpoint (RFC 6749, 2.3; RFC 7523)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_plus

from ...base.named_tuples import NamedTuple
from .. import client as late
from .discovery import ServerMetadata
from .registration import BASIC, NONE, POST, Registration

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS: Final = 60
ALGORITHM: Final = "ES256"


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """The key with which a client signs that it is the client (private_key_jwt).

    Attributes:
        text: in PEM, or a JWK.
    """

    text: str = field(repr=False)
    algorithm: str = ALGORITHM


class Authenticated(NamedTuple):
    """A form and the headers that authenticate its client."""

    form: Mapping[str, str]
    headers: Mapping[str, str]


def authenticated(
    form: Mapping[str, str], registration: Registration, server: ServerMetadata, key: PrivateKey | None, now: float
) -> Authenticated:
    """Return a form with what authenticates the client that posts it."""
    client_id, secret = registration.client_id, registration.secret
    named = {**form, "client_id": client_id}
    if key is not None:
        # The issuer, and not the endpoint: a token endpoint of another server could use the assertion there.
        assertion = late.signing.client_assertion(key, client_id, server.issuer, now, ASSERTION_SECONDS)
        return Authenticated({**named, "client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}, {})
    method = NONE if secret is None else method_for(registration, server)
    if secret is None or method == NONE:
        return Authenticated(named, {})
    if method == POST:
        return Authenticated({**named, "client_secret": secret}, {})
    # Both parts are form-encoded first (RFC 6749, 2.3.1).
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return Authenticated(form, {"authorization": f"Basic {b64encode(pair.encode()).decode()}"})


def sent_values(signed: Authenticated, registration: Registration) -> Mapping[str, str]:
    """Return what was sent, which no error may repeat; a header has the secret in an encoding only."""
    return {**signed.form, **signed.headers, "": registration.secret or ""}


def method_for(registration: Registration, server: ServerMetadata) -> str:
    """Return how a client with a secret authenticates: as registered, else the first way that both know, else basic."""
    if registration.method in (BASIC, POST, NONE):
        return registration.method
    offered = server.auth_methods if server.auth_methods is not None else (BASIC,)
    return next((each for each in (BASIC, POST, NONE) if each in offered), BASIC)
