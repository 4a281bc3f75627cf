"""Files beside the code of a server that are published only if its author says so: keys, secrets and databases."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from ...protocol.sealing.request_state import KeyRing
from ...regular_files import read_regular

KEYS: Final = (
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "*.ppk",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
)
DATABASES: Final = ("*.db", "*.db3", "*.sqlite", "*.sqlite3", "*-wal", "*-shm", "*-journal", "*.mdb", "*.duckdb")
SECRETS: Final = (
    "*.env",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "client_secret*.json",
    "service[-_]account*.json",
    "secret.toml",
    "secrets.json",
    "secrets.toml",
    "secrets.y*ml",
    "*.tfstate",
    "*.tfstate.backup",
    "*.tfvars",
)
VARIABLES: Final = re.compile(r"(.*\.)?env\.(?!(?:py|pyi|[cm]?[jt]sx?|md|rst|html|example|sample|template|dist)$)[^.]+")
"""The name of a file of variables with a word after it, such as `env.production`, and not that of code or of an example."""
SQLITE: Final = b"SQLite format 3\0"
PRIVATE_KEY: Final = re.compile(
    rb"(?:^[ \t]*-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[ \t]*\r?$)"
    rb"|(?:-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:\\{1,8}[nr]|\s){1,16}[A-Za-z0-9+/]{4})"
    rb"|(?:\APuTTY-User-Key-File-)",
    re.MULTILINE,
)
"""What begins a key in PEM, of each kind: as a line of its own, or with the key after it, as in a string of JSON. Code that only
names it has neither."""
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
HEAD: Final = 4096
"""Bytes of a file that may be a list of keys for `TRIO_MCP_KEYS`, which has fewer."""


def kind_of(path: Path, limit: int) -> str | None:
    """Return what a file is that must not be published by accident, by its name or its content; None for any other.

    Args:
        limit: bytes that it may have.

    Raises:
        OSError: it cannot be read, is no regular file, or is too large.
    """
    name = path.name.lower()
    content = read_regular(path, limit)
    if any(fnmatch(name, each) for each in DATABASES) or content.startswith(SQLITE):
        return "a database"
    if any(fnmatch(name, each) for each in SECRETS) or VARIABLES.fullmatch(name):
        return "secrets"
    if any(fnmatch(name, each) for each in KEYS) or is_private_key(content) or is_key_ring(content[:HEAD]):
        return "a key"
    return None


def is_private_key(content: bytes) -> bool:
    """Return whether a private key is in a text, in UTF-8 or UTF-16."""
    # Without the zeros, UTF-16 is the same text.
    text = content.replace(b"\0", b"") if content.startswith((b"\xff\xfe", b"\xfe\xff")) else content
    return PRIVATE_KEY.search(text.removeprefix(BYTE_ORDER_MARK)) is not None


def is_key_ring(content: bytes) -> bool:
    """Return whether these are keys as `TRIO_MCP_KEYS` has them."""
    try:
        KeyRing.parse(content.decode("ascii"))
    except ValueError:
        return False
    return True
