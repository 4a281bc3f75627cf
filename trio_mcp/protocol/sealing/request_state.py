"""Sealing of `requestState` (MCP 2026-07-28), which a server hands to a client and has to trust when it returns.

The client is an attacker here. It may change the text, cut it, keep it for years, or send it with another tool, other
arguments, in another user's name, or to another server that shares the key. So the state is encrypted and authenticated
(AES-256-GCM), and the claims inside bind it to one request of one principal at one server for a short time. Every
rejection has the same text, so that an attacker learns nothing from it; the reason is for the log.

Sealing does not prevent replays: a state can be sent again until it expires. Code that must run once needs a separate record.

Layout: base64url without padding of `version (1 byte) | key id (4) | nonce (12) | ciphertext and tag`; version and key
id are the associated data. Nothing is compressed, so nothing can inflate.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ... import types
from ...base.regular_files import MAX_CONFIGURATION, read_regular
from ...errors import ConfigurationError, InvalidRequestState, LimitExceeded
from ...types import CallToolRequestParams, JsonObject, JsonValue, Model, ResourceRequestParams
from ..codec.models import Params, PlainCall
from ..strict_json import dumps

KEY_BYTES = 32
MAX_STATE = 64 * 1024

_PURPOSE: Final = "trio_mcp requestState v1"
_VERSION: Final = b"\x01"
_KEY_ID_BYTES: Final = 4
_NONCE_BYTES: Final = 12  # NIST SP 800-38D, 5.2.1.1; random, so one key serves 2**32 states (8.3)
_TAG_BYTES: Final = 16
_HEADER_BYTES: Final = len(_VERSION) + _KEY_ID_BYTES
_MARSHAL_VERSION: Final = 2  # the later ones look for objects that occur twice, which takes longer
_MAX_SKEW: Final = 60.0  # seconds between the clocks of servers that share a key


class Claims(BaseModel):
    """What a sealed state says.

    Attributes:
        principal: the authenticated caller, or None without authentication.
        method: its method.
        digest: of its name or URI and its arguments, see `digest`.
        audience: the server that sealed it.
        call_id: the call that continues when the state returns.
        leg: the number of the round.
        issued_at: when it was sealed, in Unix seconds.
        expires_at: from when on it is refused, in Unix seconds.
        journal: what the server itself wants to know again.
    """

    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)

    principal: str | None
    method: str
    digest: str
    audience: str
    call_id: str
    leg: int
    issued_at: float
    expires_at: float
    journal: JsonValue = Field(repr=False)


class ExpiredRequestState(InvalidRequestState):
    """A state of this server, for this very request, whose time is over. Its text is that of every invalid state."""

    def __init__(self, claims: Claims) -> None:
        super().__init__("expired")
        self.claims = claims


def claims_in(plain: bytes) -> Claims:
    """Return the claims that a server has sealed. Raises `ValueError` or `RecursionError` if they are none."""
    # Not by `strict_json`: only a server with one of these keys can have written it.
    try:
        return Claims.model_validate_json(plain)
    except ValidationError:
        # pydantic_core reads fewer levels than it writes.
        return Claims.model_validate(json.loads(plain))


def digest(name_or_uri: str, arguments: JsonObject) -> str:
    """SHA-256 in hexadecimal over what a request asks for; the order of members does not count.

    Raises:
        ValueError: an argument is NaN or infinite.
    """
    canonical = _CANONICAL.encode([name_or_uri, arguments])
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def request_digest(params: Model) -> str:
    """Return the digest of what a request asks for; a retry may change nothing of it (M-MRTR-6s).

    Raises:
        ValueError: an argument is NaN or infinite.
    """
    return digest(*_asked_for(params))


def _asked_for(params: Params) -> tuple[str, JsonObject]:
    match params:
        case PlainCall(name, arguments):
            return name, arguments
        case CallToolRequestParams(name=name, arguments=arguments):
            return name, arguments or {}
        case types.GetPromptRequestParams(name=name, arguments=texts):
            return name, dict(texts or {})
        case ResourceRequestParams(uri=uri):
            return uri, {}
        case _:
            return "", {}


class RequestDigest:
    """The digest of a request. Only a call that asks its client needs it, and it is expensive for large arguments.

    Args:
        request: the params, or their digest.
    """

    __slots__ = ("_asked_for", "_digest")

    def __init__(self, request: Params | str) -> None:
        self._digest = request if isinstance(request, str) else ""
        self._asked_for: tuple[str, JsonObject | bytes] | None = None
        if not isinstance(request, str):
            name, arguments = _asked_for(request)
            # The body may change an array or an object that it was handed, and the retry brings what was sent. `marshal` copies a
            # hundred thousand values in five milliseconds; the digest takes ten times as long.
            nested = any(isinstance(value, list | dict) for value in arguments.values())
            self._asked_for = name, marshal.dumps(arguments, _MARSHAL_VERSION) if nested else dict(arguments)

    def __str__(self) -> str:
        """Return the digest.

        Raises:
            ValueError: an argument is NaN or infinite.
        """
        if self._asked_for is not None:
            name, kept = self._asked_for
            # Only this object has written these bytes, a moment ago.
            arguments = marshal.loads(kept) if isinstance(kept, bytes) else kept  # noqa: S302
            self._digest, self._asked_for = digest(name, arguments), None
        return self._digest


def to_base64url(data: bytes) -> str:
    """Return base64url without padding (RFC 4648, section 5): letters, digits, `-` and `_`."""
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def from_base64url(text: str) -> bytes | None:
    """Return the bytes, or None unless `text` is the one canonical way to write them (RFC 4648, 3.5)."""
    if not text.isascii():
        return None
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    return data if to_base64url(data) == text else None


MAKE_KEY: Final = (
    'python -c "import base64, secrets; print(base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())"'
)
"""The command that prints a new key."""


class KeyRing:
    """The secret keys of a server, 32 random bytes each. The first encrypts, all decrypt.

    Servers that must read each other's states share the ring. To rotate: add the new key at the end everywhere, then move it to
    the front everywhere, and drop the old one when the states under it have expired.

    Raises:
        ValueError: no key, a key of another length, or a key that occurs twice.
    """

    __slots__ = ("_keys", "is_random")

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.is_random = False
        """Whether `random` has made it, so that every process and every load of a file has another one."""
        self._keys = tuple(keys)
        if not self._keys:
            raise ValueError("A key ring needs at least one key.")
        for number, key in enumerate(self._keys, 1):
            if len(key) != KEY_BYTES:
                raise ValueError(f"Key {number} has {len(key)} bytes; a key has {KEY_BYTES}.")
        if len(set(self._keys)) < len(self._keys):
            raise ValueError("A key occurs twice in the ring.")

    def __repr__(self) -> str:
        return f"<KeyRing: {len(self._keys)} {'key' if len(self._keys) == 1 else 'keys'}>"

    def __eq__(self, other: object) -> bool:
        return self._keys == other._keys if isinstance(other, KeyRing) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._keys)

    @classmethod
    def random(cls) -> KeyRing:
        """A ring of one new key. What it seals cannot be opened after a restart, nor by another process."""
        ring = cls([secrets.token_bytes(KEY_BYTES)])
        ring.is_random = True
        return ring

    @classmethod
    def from_environment(cls, variable: str = "TRIO_MCP_KEYS") -> KeyRing | None:
        """The ring that an environment variable holds, or names a file of; None when it is not set.

        Raises:
            ConfigurationError: it is set to something else; see `parse`. No error shows a key.
        """
        value = os.environ.get(variable, "").strip()
        if not value:
            return None
        path = Path(value)
        # Not with its name, which may be a key in another base64.
        if os.sep in value and not path.is_file():
            raise ConfigurationError(
                f"{variable} has a {os.sep!r}, so it is the path of a file, and there is no such file"
            )
        try:
            return cls.parse(read_regular(path, MAX_CONFIGURATION).decode() if path.is_file() else value)
        except (ValueError, OSError) as error:
            raise ConfigurationError(
                f"{variable} is neither a file nor a list of keys: {error} To make a key: {MAKE_KEY}"
            ) from None

    @classmethod
    def parse(cls, text: str) -> KeyRing:
        """The ring of keys written in base64url (43 characters each), separated by commas or line breaks.

        Raises:
            ValueError: as the class does, or a key is not base64url. No error shows a key.
        """
        items = [item.strip() for line in text.splitlines() for item in line.split(",")]
        keys = [from_base64url(item.removesuffix("=")) for item in items if item]
        if None in keys:
            raise ValueError(f"Key {keys.index(None) + 1} is not base64url.")
        return cls([key for key in keys if key is not None])

    def derive(self, purpose: str, size: int) -> list[bytes]:
        """One secret of `size` bytes per key, in the order of the ring; each purpose has its own (HKDF, RFC 5869)."""
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415  see Sealer
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

        info = purpose.encode("utf-8")
        return [HKDF(algorithm=SHA256(), length=size, salt=None, info=info).derive(key) for key in self._keys]


class Sealer:
    """Seals and opens the `requestState` of one server.

    Args:
        ring: the keys.
        audience: the identity of the server; states of another audience are refused, also under the same keys.
        ttl: how long a state may be used, in seconds.
        clock: the time in Unix seconds.
        max_state: the longest state, in characters.
    """

    __slots__ = ("_audience", "_clock", "_keys", "_max_state", "_sealing_id", "_ttl")

    def __init__(
        self,
        ring: KeyRing,
        audience: str,
        ttl: float = 600,
        clock: Callable[[], float] = time.time,
        max_state: int = MAX_STATE,
    ) -> None:
        # Loading `cryptography` takes some ten milliseconds, which a server pays when it first asks a modern client.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        secrets_of_keys = ring.derive(_PURPOSE, _KEY_ID_BYTES + KEY_BYTES)
        self._keys = {secret[:_KEY_ID_BYTES]: AESGCM(secret[_KEY_ID_BYTES:]) for secret in secrets_of_keys}
        if len(self._keys) < len(secrets_of_keys):
            raise ValueError("Two keys of the ring have the same id: replace one.")
        self._sealing_id = next(iter(self._keys))
        self._audience = audience
        self._ttl = ttl
        self._clock = clock
        self._max_state = max_state

    def __repr__(self) -> str:
        return f"<Sealer: audience={self._audience!r}, {len(self._keys)} keys, ttl={self._ttl} s>"

    def seal(
        self,
        principal: str | None,
        method: str,
        request: RequestDigest | str,
        call_id: str,
        leg: int,
        journal: JsonValue = None,
    ) -> str:
        """Return the state to send: good for `ttl` seconds, for this principal, method and request, at this audience.

        Args:
            request: its digest, see `request_digest`.

        Raises:
            LimitExceeded: it would be longer than `max_state`; keep the journal elsewhere and seal a reference.
            ValueError: the journal is not JSON; the text holds the path, see `strict_json.dumps`.
        """
        now = self._clock()
        state = self._encrypt(
            dumps(
                {
                    "principal": principal,
                    "method": method,
                    "digest": str(request),
                    "audience": self._audience,
                    "call_id": call_id,
                    "leg": leg,
                    "issued_at": now,
                    "expires_at": now + self._ttl,
                    "journal": journal,
                }
            )
        )
        if len(state) > self._max_state:
            raise LimitExceeded(
                f"The requestState would have {len(state)} characters; the limit is {self._max_state} (max_state)."
            )
        return state

    def open(self, state: object, principal: str | None, method: str, request: Model | str) -> Claims:
        """Return what the state says, once it is certain that this server sealed it for this very request.

        Args:
            request: the params, or their digest.

        Raises:
            ExpiredRequestState: it was, and its time is over.
            InvalidRequestState: for every other state, always with the same text.
        """
        digest = request if isinstance(request, str) else request_digest(request)
        claims = self.peek(state)
        now = self._clock()
        # All are evaluated, so that time does not tell which one failed.
        checks = (
            (claims.principal == principal, "sealed for another principal"),
            (claims.method == method, "sealed for another method"),
            (claims.digest == digest, "sealed for another name or other arguments"),
            (claims.issued_at <= now + _MAX_SKEW, "issued in the future"),
        )
        is_expired = now >= claims.expires_at
        for holds, reason in checks:
            if not holds:
                raise InvalidRequestState(reason)
        if is_expired:
            raise ExpiredRequestState(claims)
        return claims

    def peek(self, state: object) -> Claims:
        """Return what a state of this server says, which may be for another request or caller, or expired.

        That is enough to tell which process has the call, and never to carry it on.

        Raises:
            InvalidRequestState: it is not of this server, always with the same text.
        """
        try:
            claims = claims_in(self._decrypt(state))
        except (ValueError, RecursionError):
            raise InvalidRequestState("no claims inside") from None
        if claims.audience != self._audience:
            raise InvalidRequestState("sealed by another server")
        return claims

    def age(self, claims: Claims) -> float:
        """Return how long ago a state was sealed, in seconds; the clocks of two machines may differ a little."""
        return self._clock() - claims.issued_at

    def _encrypt(self, plain: bytes) -> str:
        header = _VERSION + self._sealing_id
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return to_base64url(header + nonce + self._keys[self._sealing_id].encrypt(nonce, plain, header))

    def _decrypt(self, state: object) -> bytes:
        if not isinstance(state, str):
            raise InvalidRequestState("not a string")
        if len(state) > self._max_state:
            raise InvalidRequestState("longer than max_state")
        sealed = from_base64url(state)
        if sealed is None:
            raise InvalidRequestState("not base64url")
        if len(sealed) < _HEADER_BYTES + _NONCE_BYTES + _TAG_BYTES:
            raise InvalidRequestState("too short")
        header, nonce = sealed[:_HEADER_BYTES], sealed[_HEADER_BYTES : _HEADER_BYTES + _NONCE_BYTES]
        if not header.startswith(_VERSION):
            raise InvalidRequestState("unknown version")
        key = self._keys.get(header.removeprefix(_VERSION))
        if key is None:
            raise InvalidRequestState("unknown key")
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  see __init__

        try:
            return key.decrypt(nonce, sealed[_HEADER_BYTES + _NONCE_BYTES :], header)
        except InvalidTag:
            raise InvalidRequestState("the tag does not fit") from None
