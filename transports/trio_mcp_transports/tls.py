"""Recognizing a server that speaks no TLS, or whose certificate is not trusted."""

from __future__ import annotations

from typing import Final

from trio_mcp.groups import cause_chain

PLAIN_TEXT_REASONS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""What OpenSSL calls an answer that is not a TLS record."""


def is_plain_text(error: BaseException) -> bool:
    """Return whether a TLS handshake failed because the other side answered without TLS."""
    texts = [str(each) for each in cause_chain(error)]
    return any(reason in text for text in texts for reason in PLAIN_TEXT_REASONS)


def certificate_hint(error: BaseException) -> str:
    """Return what to do if the certificate of the server is not trusted, to be put behind the text; else an empty text."""
    if any("CERTIFICATE_VERIFY_FAILED" in str(each) for each in cause_chain(error)):
        return "; if the server is yours, set SSL_CERT_FILE to the file of its authority or of its certificate"
    return ""
