"""What is stored is sealed: encrypted, authenticated, and bound to its place (AES-256-GCM).

Layout: `version (1 byte) | key id (4) | nonce (12) | ciphertext and tag`. Version, key id and place are the associated data, so
that a value which was moved to another place in the store does not open.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from .request_state import KEY_BYTES, KeyRing

_PURPOSE: Final = "trio_mcp at rest v1"
_NAMES_PURPOSE: Final = "trio_mcp names at rest v1"
_VERSION: Final = b"\x01"
_KEY_ID_BYTES: Final = 4
_NONCE_BYTES: Final = 12  # NIST SP 800-38D, 5.2.1.1; random, so one key serves 2**32 values (8.3)
_TAG_BYTES: Final = 16
_HEADER_BYTES: Final = len(_VERSION) + _KEY_ID_BYTES
OVERHEAD: Final = _HEADER_BYTES + _NONCE_BYTES + _TAG_BYTES
"""Bytes by which a sealed value is longer."""


class Unsealable(ValueError):
    """A value was not sealed with a key of the ring for this place, or was changed since."""


class Vault:
    """Seals values for a store, and opens them again.

    Args:
        ring: the first key seals, all of them open.
        purpose: what the values are for; keys that are derived for another purpose do not open them.
    """

    __slots__ = ("_keys", "_name_keys", "_sealing_id")

    def __init__(self, ring: KeyRing, purpose: str = _PURPOSE) -> None:
        # Loading `cryptography` takes some ten milliseconds, which only a server with a durable store pays at its start.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        secrets_of_keys = ring.derive(purpose, _KEY_ID_BYTES + KEY_BYTES)
        self._keys = {secret[:_KEY_ID_BYTES]: AESGCM(secret[_KEY_ID_BYTES:]) for secret in secrets_of_keys}
        if len(self._keys) < len(secrets_of_keys):
            raise ValueError("Two keys of the ring have the same id: replace one.")
        self._sealing_id = next(iter(self._keys))
        self._name_keys = ring.derive(_NAMES_PURPOSE, KEY_BYTES)

    def seal(self, value: bytes, place: bytes) -> bytes:
        """Return a value as it is stored at this place."""
        header, nonce = _VERSION + self._sealing_id, secrets.token_bytes(_NONCE_BYTES)
        return header + nonce + self._keys[self._sealing_id].encrypt(nonce, value, header + place)

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """Return a value that was sealed for this place.

        Raises:
            Unsealable: it was not, or not with one of these keys.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  see __init__

        header, nonce = sealed[:_HEADER_BYTES], sealed[_HEADER_BYTES : _HEADER_BYTES + _NONCE_BYTES]
        if len(sealed) < OVERHEAD or not header.startswith(_VERSION):
            raise Unsealable("the value was not sealed by this version of trio_mcp")
        key = self._keys.get(header.removeprefix(_VERSION))
        if key is None:
            raise Unsealable("the key is not among those of TRIO_MCP_KEYS or ServiceOptions.keys")
        try:
            return key.decrypt(nonce, sealed[_HEADER_BYTES + _NONCE_BYTES :], header + place)
        except InvalidTag:
            raise Unsealable("the value was changed or moved") from None

    def names(self, name: str) -> list[str]:
        """Return what stands for a name in the store, one text for each key: the first is for writing, all are for finding."""
        return [hmac.digest(key, name.encode(), "sha256")[:16].hex() for key in self._name_keys]
