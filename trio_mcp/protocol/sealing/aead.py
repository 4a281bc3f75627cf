"""Authenticated encryption, as `cryptography` has it: AES-256-GCM (NIST SP 800-38D) and HKDF-SHA256 (RFC 5869)."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


class Cipher:
    """AES-256-GCM under one key."""

    __slots__ = ("_gcm",)

    def __init__(self, key: bytes) -> None:
        self._gcm = AESGCM(key)

    def seal(self, nonce: bytes, plain: bytes, associated: bytes) -> bytes:
        """Encrypt and authenticate; a nonce is good for one message."""
        return self._gcm.encrypt(nonce, plain, associated)

    def open(self, nonce: bytes, sealed: bytes, associated: bytes) -> bytes | None:
        """The plain bytes, or None when anything was altered."""
        try:
            return self._gcm.decrypt(nonce, sealed, associated)
        except InvalidTag:
            return None


def derive(key: bytes, purpose: str, size: int) -> bytes:
    """A secret of `size` bytes from a key, different for each purpose."""
    return HKDF(algorithm=SHA256(), length=size, salt=None, info=purpose.encode("utf-8")).derive(key)
