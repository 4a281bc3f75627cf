"""The files of TLS: what is wrong with them, in words that OpenSSL does not have."""

from __future__ import annotations

import ssl

from trio_mcp.errors import ConfigurationError
from trio_mcp.http import Tls
from trio_mcp.regular_files import MAX_CONFIGURATION, read_regular

CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
KEY = b"PRIVATE KEY-----"
"""The end of the lines that begin a key, of each kind."""
ENCRYPTED = (b"-----BEGIN ENCRYPTED", b"Proc-Type: 4,ENCRYPTED")


def check_tls(tls: Tls | None) -> None:
    """Raise `ConfigurationError` if the files cannot be used; else hypercorn would, from within a nursery."""
    if tls is None:
        return
    certificate = read(tls.certfile)
    key = certificate if tls.keyfile is None else read(tls.keyfile)
    try:
        # Without a password OpenSSL would ask for one at the terminal.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            tls.certfile, tls.keyfile, password=tls.password or ""
        )
    except (ssl.SSLError, ValueError) as error:
        named = tls.certfile if tls.keyfile is None else f"{tls.certfile} with the key {tls.keyfile}"
        is_other_key = getattr(error, "reason", None) == "KEY_VALUES_MISMATCH"
        why = None if is_other_key else reason(tls, certificate, key)
        raise ConfigurationError(f"TLS: {why or f'{named} cannot be used: {error}'}") from None


def read(file: str) -> bytes:
    """Return what is in a file. Raises `ConfigurationError`."""
    try:
        return read_regular(file, MAX_CONFIGURATION)
    except OSError as error:
        raise ConfigurationError(f"TLS: {file} cannot be read: {error.strerror}") from None


def reason(tls: Tls, certificate: bytes, key: bytes) -> str | None:
    """Return why OpenSSL rejects the files, as far as that can be seen in them; its own error may be just "PEM lib"."""
    if CERTIFICATE not in certificate:
        return f"{tls.certfile} has no certificate in PEM, which begins with {CERTIFICATE.decode()}"
    if KEY not in key:
        if tls.keyfile is None:
            return f"{tls.certfile} has no private key: name the file of the key too, with keyfile= or --keyfile"
        return f"{tls.keyfile} has no private key in PEM"
    if any(line in key for line in ENCRYPTED):
        state = "is not that of" if tls.password else "is needed for"
        return (
            f"the password {state} the key in {tls.keyfile or tls.certfile}: give it with password=, or to `trio-mcp serve` in "
            f"the variable TRIO_MCP_KEYFILE_PASSWORD"
        )
    return None
