"""Names that only their owner may use: sealed, since anyone who holds a name could send it.

A proxy is one caller to its server, and has several itself. The ids and links that the server gives to one of them would be good
in the hands of another, so each caller gets them sealed for this caller. They are encrypted, because a server may repeat what it
is sent: a caller who read the name of another could have it repeated, and so sealed for itself. One name of one owner has one
text, because clients compare the ids of several messages. It does not expire; what it names may.

Layout: base64url without padding of `key id (4 bytes) | nonce (12) | ciphertext and tag` (AES-256-GCM). The nonce is a truncated
HMAC-SHA256 over the audience, the kind, the owner and the name, so that one nonce seals one name; the first three are the
associated data.
"""

from __future__ import annotations

import hmac
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from .request_state import KEY_BYTES, KeyRing, from_base64url, to_base64url

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_PURPOSE: Final = "trio_mcp owned name v1"
_KEY_ID_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_LENGTH_BYTES: Final = 8


class _Key(NamedTuple):
    id: bytes
    nonces: bytes
    cipher: AESGCM


class OwnedNames:
    """Seals names for their owners, and opens them.

    Args:
        ring: the keys. The first seals, all of them open.
        audience: whose owners they are; names of another audience are not opened, also under the same keys.
    """

    def __init__(self, ring: KeyRing, audience: str) -> None:
        self._ring = ring
        self._audience = audience

    def seal(self, kind: str, owner: str, name: str) -> str:
        """Return the text under which this owner may use a name of this kind."""
        key, whose, plain = self._keys[0], _joined(self._audience, kind, owner), _bytes(name)
        nonce = hmac.digest(key.nonces, whose + plain, "sha256")[:_NONCE_BYTES]
        return to_base64url(key.id + nonce + key.cipher.encrypt(nonce, plain, whose))

    def open(self, kind: str, owner: str, text: str) -> str | None:
        """Return the name in a text; None if it was not sealed as this kind for this owner."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  as in `_keys`

        sealed = from_base64url(text) or b""
        key = next((each for each in self._keys if sealed.startswith(each.id)), None)
        nonce, body = sealed[_KEY_ID_BYTES:][:_NONCE_BYTES], sealed[_KEY_ID_BYTES + _NONCE_BYTES :]
        if key is None or not body:
            return None
        try:
            return key.cipher.decrypt(nonce, body, _joined(self._audience, kind, owner)).decode(
                "utf-8", "surrogatepass"
            )
        except InvalidTag:
            return None

    @cached_property
    def _keys(self) -> list[_Key]:
        """Derived for the first name."""
        # Loading it takes some ten milliseconds, which a proxy pays that has principals.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        found: list[_Key] = []
        for secret in self._ring.derive(_PURPOSE, _KEY_ID_BYTES + 2 * KEY_BYTES):
            key_id, rest = secret[:_KEY_ID_BYTES], secret[_KEY_ID_BYTES:]
            found.append(_Key(key_id, rest[:KEY_BYTES], AESGCM(rest[KEY_BYTES:])))
        return found


def _joined(*texts: str) -> bytes:
    # The lengths part them: ("a", "bc") must not be ("ab", "c").
    return b"".join(len(part).to_bytes(_LENGTH_BYTES) + part for part in map(_bytes, texts))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
