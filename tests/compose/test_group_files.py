"""Groups of the servers in a host's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from naming import naming, unnamed
from programs import Programs, programs

from trio_mcp import Client, ClientGroup, GroupServer, Server
from trio_mcp.compose import CommandServer, OAuthClient, UrlServer
from trio_mcp.compose.servers import as_group_servers, members_of
from trio_mcp.errors import ConfigurationError

__all__ = ["programs"]


@pytest.fixture
def path(tmp_path: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MISSING", raising=False)
    server = Server("files")

    @server.tool
    async def read() -> str:
        return "content"

    @server.tool
    async def delete() -> str:
        return "deleted"

    programs.servers = {"files": server, "more": server}
    file = tmp_path / "mcp.json"
    entries = {
        "files": {
            "command": "files",
            "args": ["--all"],
            "env": {"TOKEN": "${TOKEN}"},
            "cwd": "sub",
            "excludeTools": ["delete"],
            "frobnicate": 1,
        },
        "more": {"command": "more", "disabled": True},
        "broken": {"command": "broken", "env": {"A": "${MISSING}"}},
    }
    file.write_text(json.dumps({"mcpServers": entries}))
    return file


async def test_servers_start_as_their_file_says(
    path: Path, programs: Programs, caplog: pytest.LogCaptureFixture
) -> None:
    async with ClientGroup.from_file(path, variables={"TOKEN": "secret", "MISSING": "x"}) as group:
        assert [*group] == ["files", "broken"]
        assert programs.options["files"] == {"env": {"TOKEN": "secret"}, "cwd": str(path.parent / "sub")}
        assert [tool.name for tool in await group.list_tools()] == ["files_read"]
        assert (await group.call_tool("files_read")).text == "content"
    assert unnamed(caplog.text, "files", "frobnicate") == []
    assert "secret" not in caplog.text


async def test_some_servers_of_a_file_may_be_chosen(path: Path) -> None:
    async with ClientGroup.from_file(str(path), servers=["files"], variables={"TOKEN": "x"}, only=["*_read"]) as group:
        assert [*group] == ["files"]


def test_what_is_wrong_with_the_servers_that_are_used_is_an_error_that_names_them(path: Path) -> None:
    with pytest.raises(ConfigurationError, match=naming("files", "TOKEN", "broken", "MISSING")):
        ClientGroup.from_file(path)
    with pytest.raises(ConfigurationError, match=naming("more", "disabled")):
        ClientGroup.from_file(path, servers=["more"])
    with pytest.raises(ConfigurationError, match=naming("fils", "files")):
        ClientGroup.from_file(path, servers=["fils"], variables={"TOKEN": "x", "MISSING": "x"})


@pytest.mark.parametrize(
    ("wire", "options"), [("http", {"headers": {"a": "b"}}), ("sse", {"mode": "legacy", "headers": {"a": "b"}})]
)
def test_a_url_of_a_file_is_connected_to_with_its_headers(wire: Any, options: Any) -> None:
    server = UrlServer(name="a", url="http://localhost/mcp", headers={"a": "b"}, wire=wire)
    made = as_group_servers({"a": server})["a"]
    assert (made.target, made.options) == ("http://localhost/mcp", options)
    assert "b" not in repr(made).replace("GroupServer", "")


class Settings:
    """Settings of a login that know which client they are for."""

    def __init__(self, client: OAuthClient | None = None) -> None:
        self.client = client

    def open(self, url: str) -> Any:
        raise AssertionError("nothing is opened here")

    def for_client(self, client: OAuthClient) -> Settings:
        return Settings(client)


def auth_of(server: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """The `auth` with which a group connects to a server; "none" without one."""
    connected: list[dict[str, Any]] = []
    monkeypatch.setattr(Client, "connect", lambda _target, **keywords: connected.append(keywords))
    keywords: Any = {"auth": Settings(), **options}
    [*members_of(as_group_servers({"a": server}), keywords, None, 1.0, lambda _: None, lambda _: None)]
    return connected[0].get("auth", "none")


def test_the_auth_of_a_group_is_for_urls_that_have_no_credentials_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "https://example.org/mcp"
    assert isinstance(auth_of(url, monkeypatch), Settings)
    assert isinstance(auth_of(UrlServer(name="a", url=url), monkeypatch), Settings)
    assert auth_of(UrlServer(name="a", url=url, headers={"Authorization": "x"}), monkeypatch) == "none"
    assert auth_of(["server"], monkeypatch) == "none"
    assert auth_of(CommandServer(name="a", command=("server",)), monkeypatch) == "none"
    assert auth_of(Server("a"), monkeypatch) == "none"
    assert auth_of(GroupServer(url, options={"auth": "token"}), monkeypatch) == "token"


def test_the_client_of_a_file_completes_the_auth_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    client = OAuthClient(client_id="a")
    server = UrlServer(name="a", url="https://example.org/mcp", oauth=client)
    assert auth_of(server, monkeypatch).client == client
    # What takes no client stays as it is.
    assert auth_of(server, monkeypatch, auth="token") == "token"
