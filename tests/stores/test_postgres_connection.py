"""The connection to PostgreSQL, without a server."""

from __future__ import annotations

import socket
import sys

import pytest

from trio_mcp.stores.postgres_connection import is_readable


@pytest.mark.parametrize("system", ["linux", "win32"])
def test_what_has_come_on_a_connection_is_noticed_on_each_system(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not is_readable(ours)  # type: ignore[arg-type]
        theirs.send(b"x")
        assert is_readable(ours)  # type: ignore[arg-type]
