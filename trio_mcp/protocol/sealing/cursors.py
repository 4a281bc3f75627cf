"""Cursors of paginated lists (L-PAG-1b): opaque to the peer, and signed, so that only what was issued is read.

A cursor is a position in one list of one server. It is signed and not encrypted: what it holds is a number that the peer
could count for itself. It does not expire; where the list is shorter now, the page is shorter.

Layout: base64url without padding of `version (1 byte) | position (8) | HMAC-SHA256 (32)`. The signature also covers the
name of the list and the server, which are not in the text.
"""

from __future__ import annotations

import hmac
import json
from functools import cached_property
from typing import Final

from ...errors import RemoteProtocolError
from ..jsonrpc import INVALID_PARAMS
from .request_state import KeyRing, from_base64url, to_base64url

_PURPOSE: Final = "trio_mcp cursor v1"
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
        return self._ring.derive(_PURPOSE, _KEY_BYTES)

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
