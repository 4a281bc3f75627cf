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
import json
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ...base.named_tuples import NamedTuple
from ...errors import RemoteProtocolError
from ..jsonrpc import INVALID_PARAMS
from .request_state import KEY_BYTES, KeyRing, from_base64url, to_base64url

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_OWNED: Final = "trio_mcp owned name v1"
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
        for secret in self._ring.derive(_OWNED, _KEY_ID_BYTES + 2 * KEY_BYTES):
            key_id, rest = secret[:_KEY_ID_BYTES], secret[_KEY_ID_BYTES:]
            found.append(_Key(key_id, rest[:KEY_BYTES], AESGCM(rest[KEY_BYTES:])))
        return found


def _joined(*texts: str) -> bytes:
    # The lengths part them: ("a", "bc") must not be ("ab", "c").
    return b"".join(len(part).to_bytes(_LENGTH_BYTES) + part for part in map(_bytes, texts))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# Cursors of paginated lists (L-PAG-1b): opaque to the peer, and signed, so that only what was issued is read.
#
# A cursor is a position in one list of one server. It is signed and not encrypted: what it holds is a number that the peer
# could count for itself. It does not expire; where the list is shorter now, the page is shorter.
#
# Layout: base64url without padding of `version (1 byte) | position (8) | HMAC-SHA256 (32)`. The signature also covers the
# name of the list and the server, which are not in the text.

_CURSOR: Final = "trio_mcp cursor v1"
_KEY_BYTES: Final = 32
_VERSION: Final = b"\x01"
_POSITION_BYTES: Final = 8
_BODY_BYTES: Final = len(_VERSION) + _POSITION_BYTES
_TAG_BYTES: Final = 32
_TEXT_CHARS: Final = len(to_base64url(bytes(_BODY_BYTES + _TAG_BYTES)))
_SHOWN: Final = 64  # characters of a refused cursor that its error shows


class Cursors:
    """Issues and reads the cursors of one server.

    Args:
        ring: the keys. The first signs, all of them verify.
        audience: the identity of the server; cursors of another audience are refused, also under the same keys.
    """

    def __init__(self, ring: KeyRing, audience: str) -> None:
        self._ring = ring
        self._audience = audience

    def issue(self, listing: str, position: int) -> str:
        """The cursor of `position` in the list called `listing`, for example of `tools/list`.

        Raises:
            ValueError: the position is negative, or not below 2**64.
        """
        if not 0 <= position < 2 ** (8 * _POSITION_BYTES):
            raise ValueError(f"A position is from 0 to 2**64 - 1, not {position}.")
        body = _VERSION + position.to_bytes(_POSITION_BYTES)
        return to_base64url(body + self._tag(self._keys[0], body, listing))

    def read(self, listing: str, cursor: str) -> int:
        """The position that a cursor of this list holds. Every string counts as a cursor, also the empty one.

        Raises:
            RemoteProtocolError: -32602, it was not issued for this list of this server; the message shows its beginning.
        """
        # A text of another length is not a cursor: nothing is decoded for it.
        signed = from_base64url(cursor) if len(cursor) == _TEXT_CHARS else None
        if signed is None:
            raise _refused(listing, cursor)
        body, tag = signed[:_BODY_BYTES], signed[_BODY_BYTES:]
        # All keys are tried, so that time does not tell which one fits.
        fits = [hmac.compare_digest(tag, self._tag(key, body, listing)) for key in self._keys]
        if not any(fits) or not body.startswith(_VERSION):
            raise _refused(listing, cursor)
        return int.from_bytes(body[len(_VERSION) :])

    @cached_property
    def _keys(self) -> list[bytes]:
        """Derived when the first cursor needs them: a server whose lists fit on a page never pays for it."""
        return self._ring.derive(_CURSOR, _KEY_BYTES)

    def _tag(self, key: bytes, body: bytes, listing: str) -> bytes:
        name = listing.encode()
        # The length parts the two names: ("a", "bc") must not sign as ("ab", "c") does.
        signed = body + len(name).to_bytes(_POSITION_BYTES) + name + self._audience.encode()
        return hmac.digest(key, signed, "sha256")


def _refused(listing: str, cursor: str) -> RemoteProtocolError:
    shown = json.dumps(cursor if len(cursor) <= _SHOWN else cursor[:_SHOWN] + "...")
    return RemoteProtocolError(
        f"The cursor {shown} was not issued for {listing} by this server: ask again without a cursor.",
        code=INVALID_PARAMS,
    )
