"""The files of TLS are checked before the server listens, and an error says what they lack."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from certificates import make_certificate
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from naming import unnamed

from trio_mcp import Server
from trio_mcp.errors import ConfigurationError
from trio_mcp.http import Tls
from trio_mcp_transports.http import serve_http


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a certificate, its key in each form, and another key."""
    monkeypatch.chdir(tmp_path)
    both = make_certificate(tmp_path / "both.pem").read_bytes()
    start = both.index(b"-----BEGIN PRIVATE")
    (tmp_path / "cert.pem").write_bytes(both[:start])
    (tmp_path / "key.pem").write_bytes(both[start:])
    (tmp_path / "empty.pem").touch()
    other = make_certificate(tmp_path / "other.pem").read_bytes()
    (tmp_path / "other_key.pem").write_bytes(other[other.index(b"-----BEGIN PRIVATE") :])
    key = load_pem_private_key(both[start:], None)
    for name, form in (("pkcs8.pem", PrivateFormat.PKCS8), ("old.pem", PrivateFormat.TraditionalOpenSSL)):
        (tmp_path / name).write_bytes(key.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"secret")))
    return tmp_path


@pytest.mark.parametrize(
    ("tls", "names"),
    [
        (Tls("none.pem"), ["none.pem", "cannot be read"]),
        (Tls("."), [".", "cannot be read"]),
        (Tls("cert.pem", "none.pem"), ["none.pem", "cannot be read"]),
        (Tls("empty.pem"), ["empty.pem", "no certificate"]),
        (Tls("key.pem"), ["key.pem", "no certificate"]),
        (Tls("cert.pem"), ["cert.pem", "no private key", "--keyfile"]),
        (Tls("cert.pem", "empty.pem"), ["empty.pem", "no private key"]),
        (Tls("cert.pem", "other_key.pem"), ["cert.pem", "other_key.pem", "mismatch"]),
        (Tls("cert.pem", "pkcs8.pem"), ["pkcs8.pem", "is needed", "TRIO_MCP_KEYFILE_PASSWORD"]),
        (Tls("cert.pem", "old.pem"), ["old.pem", "is needed", "TRIO_MCP_KEYFILE_PASSWORD"]),
        (Tls("cert.pem", "pkcs8.pem", "wrong"), ["pkcs8.pem", "is not that of", "password="]),
    ],
)
async def test_a_file_that_cannot_be_used_is_named_with_what_it_lacks(tls: Tls, names: list[str], folder: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await serve_http(Server("x"), port=0, tls=tls)
    text = str(caught.value)
    assert unnamed(text, "TLS", *names) == []
    assert "\n" not in text
    assert "wrong" not in text


@pytest.mark.parametrize("tls", [Tls("pipe.pem"), Tls("cert.pem", "pipe.pem")])
async def test_a_certificate_is_a_regular_file(tls: Tls, folder: Path) -> None:
    os.mkfifo(folder / "pipe.pem")
    # Without this end, opening the other one would wait.
    end = os.open(folder / "pipe.pem", os.O_RDWR | os.O_NONBLOCK)
    try:
        with pytest.raises(ConfigurationError, match="FIFO"):
            await serve_http(Server("x"), port=0, tls=tls)
    finally:
        os.close(end)
