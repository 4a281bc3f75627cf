"""News for what has started a process."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from trio_mcp.base.service_notices import notify


def test_news_reach_a_socket_in_the_abstract_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"trio-mcp-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + name)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        assert notify("READY=1")
        assert sock.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/socket"])
def test_news_that_reach_nobody_are_no_error(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not notify("READY=1")


def test_the_parent_is_notified_where_sockets_have_no_flag_for_child_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on macOS, where the workers of `trio-mcp serve --workers` say in this way that they are ready."""
    monkeypatch.delattr(socket, "SOCK_CLOEXEC")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notices"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as parent:
        parent.bind(str(tmp_path / "notices"))
        assert notify("READY=1")
        assert parent.recv(64) == b"READY=1"
