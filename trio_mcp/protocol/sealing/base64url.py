"""base64url without padding (RFC 4648, section 5), the way opaque texts travel: one text for each sequence of bytes."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode


def encode(data: bytes) -> str:
    """The text, of the letters, the digits, `-` and `_`."""
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decode(text: str) -> bytes | None:
    """The bytes, or None unless `text` is the one canonical way to write them (RFC 4648, 3.5)."""
    if not text.isascii():
        return None
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    return data if encode(data) == text else None
