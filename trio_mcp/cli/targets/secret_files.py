"""Files beside the code of a server that are published only if its author says so: keys, secrets and databases."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from ...protocol.sealing.request_state import KeyRing
from ...regular_files import open_regular

KEYS: Final = (
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
)
SECRETS: Final = (
    "*.env",
    "credentials.json",
    "client_secret*.json",
    "service[-_]account*.json",
    "secrets.json",
    "secrets.toml",
    "secrets.y*ml",
)
DATABASES: Final = ("*.db", "*.db3", "*.sqlite", "*.sqlite3", "*-wal", "*-shm", "*-journal", "*.mdb", "*.duckdb")
SQLITE: Final = b"SQLite format 3\0"
PRIVATE_KEY: Final = re.compile(rb"^-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----", re.MULTILINE)
"""The line that begins a key in PEM, of each kind."""
HEAD: Final = 4096
"""Bytes of a file that are looked at; a list of keys for `TRIO_MCP_KEYS` has fewer."""


def kind_of(path: Path) -> str | None:
    """Return what a file is that must not be published by accident, by its name or its content; None for any other.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    name = path.name.lower()
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        head = file.read(HEAD)
    if any(fnmatch(name, each) for each in DATABASES) or head.startswith(SQLITE):
        return "a database"
    if any(fnmatch(name, each) for each in KEYS) or PRIVATE_KEY.search(head) or is_key_ring(head):
        return "a key"
    return "secrets" if any(fnmatch(name, each) for each in SECRETS) else None


def is_key_ring(content: bytes) -> bool:
    """Return whether these are keys as `TRIO_MCP_KEYS` has them."""
    try:
        KeyRing.parse(content.decode("ascii"))
    except ValueError:
        return False
    return True
