"""Reading the files in which hosts keep their servers, in the forms that hosts write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from naming import naming, unnamed

from trio_mcp.base.regular_files import MAX_CONFIGURATION
from trio_mcp.compose import CommandServer, McpJson, OAuthClient, UrlServer, parse_mcp_json, read_mcp_json
from trio_mcp.errors import ConfigurationError


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("MISSING", raising=False)
    monkeypatch.setenv("HOME", "/home/me")


def parsed(value: Any, **options: Any) -> McpJson:
    text = value if isinstance(value, str) else json.dumps(value)
    return parse_mcp_json(text, "mcp.json", folder=Path("/project"), **options)


def one(members: Any, **options: Any) -> CommandServer | UrlServer:
    """The only server of a file."""
    return parsed({"mcpServers": {"one": members}}, **options).server("one")


def refused(members: Any, *names: str) -> None:
    with pytest.raises(ConfigurationError, match=naming("mcp.json", "one", *names)) as raised:
        one(members)
    assert "secret" not in str(raised.value)


# forms


@pytest.mark.parametrize(
    "value",
    [
        {"mcpServers": {"files": {"command": "python", "args": ["files.py"], "env": {"A": "1"}}}},
        {"mcpServers": {"files": {"type": "stdio", "command": "python", "args": ["files.py"], "env": {"A": "1"}}}},
        {"servers": {"files": {"type": "stdio", "command": "python", "args": ["files.py"], "env": {"A": "1"}}}},
        {"mcp": {"servers": {"files": {"command": "python", "args": ["files.py"], "env": {"A": 1}}}}, "editor": {}},
        {"mcp": {"files": {"type": "local", "command": ["python", "files.py"], "environment": {"A": "1"}}}},
        {"context_servers": {"files": {"command": "python", "args": ["files.py"], "env": {"A": "1", "B": None}}}},
    ],
    ids=["Claude Desktop", "Claude Code", "VS Code", "VS Code settings", "opencode", "Zed"],
)
def test_a_command_is_read_from_the_files_of_each_host(value: Any) -> None:
    assert parsed(value).servers == {
        "files": CommandServer(name="files", command=("python", "files.py"), env={"A": "1"})
    }


@pytest.mark.parametrize(
    ("members", "wire"),
    [
        ({"url": "https://example.org/mcp"}, "http"),
        ({"type": "http", "url": "https://example.org/mcp"}, "http"),
        ({"transport": "streamable-http", "url": "https://example.org/mcp"}, "http"),
        ({"type": "streamableHttp", "url": "https://example.org/mcp"}, "http"),
        ({"type": "sse", "url": "https://example.org/mcp"}, "sse"),
        ({"httpUrl": "https://example.org/mcp"}, "http"),
        ({"serverUrl": "https://example.org/mcp"}, "http"),
        ({"type": "remote", "url": "https://example.org/mcp", "enabled": True}, "http"),
    ],
)
def test_a_url_is_read_from_the_files_of_each_host(members: dict[str, Any], wire: Any) -> None:
    headers = {"Authorization": "Bearer x"}
    assert one({**members, "headers": headers}) == UrlServer(
        name="one", url="https://example.org/mcp", headers=headers, wire=wire
    )


def test_a_websocket_is_known_by_its_url() -> None:
    server = one({"url": "wss://example.org/mcp"})
    assert isinstance(server, UrlServer)
    assert server.wire == "websocket"


def test_a_file_may_have_comments_and_trailing_commas() -> None:
    text = """
    { // the servers
      "mcpServers": { /* two
        of them */
        "a": {"url": "https://example.org//mcp, }", "headers": {"x": "/* no */"},},
        "b": {"command": "run", "args": ["//", "\\"//",],},  // the last
      },
    }
    """
    file = parsed(text)
    assert file.servers == {
        "a": UrlServer(name="a", url="https://example.org//mcp, }", headers={"x": "/* no */"}),
        "b": CommandServer(name="b", command=("run", "//", '"//')),
    }


def test_tools_may_be_chosen() -> None:
    assert one({"command": "run", "includeTools": ["a", "b"], "excludeTools": ["b"], "disabledTools": ["c"]}) == (
        CommandServer(name="one", command=("run",), only=("a", "b"), without=("b", "c"))
    )
    assert one({"command": "run", "tools": ["*"]}).only == ("*",)


def test_what_is_disabled_is_left_out_and_need_not_be_right() -> None:
    file = parsed(
        {
            "mcpServers": {
                "a": {"command": "run"},
                "b": {"command": "${MISSING}", "disabled": True},
                "c": {"enabled": False},
            }
        }
    )
    assert [*file.servers] == ["a"]
    assert file.disabled == {"b", "c"}
    file.check()
    with pytest.raises(ConfigurationError, match=naming("b", "disabled")):
        file.server("b")


# variables


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("Bearer ${TOKEN}", "Bearer secret"),
        ("${env:TOKEN}-${TOKEN}", "secret-secret"),
        ("${MISSING:-default}", "default"),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${MISSING:-}", ""),
        ("${TOKEN:-default}", "secret"),
        ("${userHome}/x", "/home/me/x"),
        ("${workspaceFolder}/x", "/project/x"),
        ("${workspaceFolderBasename}", "project"),
        ("a${/}b${pathSeparator}c", "a/b/c"),
        ("${input:key}", "typed"),
        ("${OWN}", "given"),
        ("${env:OWN}", "given"),
        ("$TOKEN and $${", "$TOKEN and $${"),
        ("a ${} b", "nothing"),
    ],
)
def test_variables_are_expanded(text: str, expanded: str) -> None:
    variables = {"input:key": "typed", "OWN": "given", "": "nothing"}
    expanded = "a nothing b" if text == "a ${} b" else expanded
    server = one({"command": "run", "args": [text], "env": {"A": text}}, variables=variables)
    assert isinstance(server, CommandServer)
    assert server.command == ("run", expanded)
    assert server.env == {"A": expanded}
    remote = one({"url": f"https://x/{text}", "headers": {"h": text}}, variables=variables)
    assert isinstance(remote, UrlServer)
    assert remote.headers == {"h": expanded}


def test_a_value_is_not_expanded_again() -> None:
    server = one({"command": "run", "args": ["${OWN}"]}, variables={"OWN": "${TOKEN}"})
    assert isinstance(server, CommandServer)
    assert server.command == ("run", "${TOKEN}")


def test_the_workspace_of_an_editor_is_the_folder_above_its_own() -> None:
    file = parse_mcp_json(
        '{"servers": {"one": {"command": "run", "cwd": "${workspaceFolder}"}}}', "x", folder=Path("/project/.vscode")
    )
    server = file.server("one")
    assert isinstance(server, CommandServer)
    assert server.cwd == "/project"


def test_a_variable_without_a_value_is_an_error_that_names_it_and_its_place() -> None:
    refused({"command": "run", "env": {"A": "secret ${MISSING}"}}, "env.A", "MISSING")
    refused({"url": "https://x", "headers": {"h": "${env:MISSING}"}}, "headers.h", "env:MISSING")
    refused({"url": "https://x", "headers": {"h": "${input:key}"}}, "headers.h", "input:key", "variables")


def test_a_variable_without_braces_is_passed_as_it_is_with_a_warning() -> None:
    file = parsed({"mcpServers": {"one": {"command": "run", "env": {"A": "$TOKEN"}}}})
    server = file.server("one")
    assert isinstance(server, CommandServer)
    assert server.env == {"A": "$TOKEN"}
    assert unnamed(file.warnings[0], "one", "env.A", "${TOKEN}") == []


# files with variables, folders


def test_an_env_file_is_read_and_env_wins(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "# comment\nA=1\nexport B = 'two # words'\nC=\"3\"\n\nD=4 # comment\nE=\nF=a#b\nG=1\n", encoding="utf-8"
    )
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"one": {"command": "run", "envFile": ".env", "env": {"G": "2"}, "cwd": "sub"}}}')
    server = read_mcp_json(path).server("one")
    assert isinstance(server, CommandServer)
    assert server.env == {"A": "1", "B": "two # words", "C": "3", "D": "4", "E": "", "F": "a#b", "G": "2"}
    assert server.cwd == str(tmp_path / "sub")


def test_a_wrong_env_file_is_an_error_that_names_the_line_and_not_its_content(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1\nsecret thing\n")
    file = parse_mcp_json('{"mcpServers": {"one": {"command": "run", "envFile": ".env"}}}', "mcp.json", folder=tmp_path)
    with pytest.raises(ConfigurationError, match=naming("envFile", "line 2")) as raised:
        file.server("one")
    assert "secret" not in str(raised.value)
    file = parse_mcp_json('{"mcpServers": {"one": {"command": "run", "envFile": "none"}}}', "mcp.json", folder=tmp_path)
    with pytest.raises(ConfigurationError, match=naming("envFile", "none")):
        file.server("one")


@pytest.mark.parametrize(
    ("member", "path"), [("cwd", "~nobody-of-this-name/x"), ("envFile", "~nobody-of-this-name/x"), ("envFile", "a\0b")]
)
def test_a_path_that_leads_nowhere_is_an_error_of_its_server_alone(member: str, path: str) -> None:
    servers = {"one": {"command": "run", member: path}, "two": {"command": "run"}}
    file = parse_mcp_json(json.dumps({"mcpServers": servers}), "mcp.json")
    assert list(file.servers) == ["two"]
    assert unnamed(str(file.errors["one"]), "one", member) == []


# mistakes


@pytest.mark.parametrize(
    ("members", "names"),
    [
        ({}, ["command", "url"]),
        ({"comand": "run"}, ["comand", "command"]),
        ("run", ["command"]),
        ({"command": ""}, ["command"]),
        ({"command": 7}, ["command"]),
        ({"command": "run", "args": "x"}, ["args"]),
        ({"command": "run", "args": ["x", 7]}, ["args[1]"]),
        ({"command": "run", "env": ["A=1"]}, ["env"]),
        ({"command": "run", "env": {"A": True}}, ["env.A"]),
        ({"command": "run", "url": "https://x"}, ["command", "url"]),
        ({"command": "run", "type": "http"}, ["type", "stdio"]),
        ({"url": "https://x", "type": "stdio"}, ["type", "url"]),
        ({"url": "https://x", "type": "smoke"}, ["type", "smoke", "http"]),
        ({"url": "https://x", "headers": {"h": 7}}, ["headers.h"]),
        ({"command": "run", "env": {}, "environment": {}}, ["env", "environment"]),
        ({"command": "run", "disabled": "yes"}, ["disabled"]),
    ],
)
def test_a_wrong_server_is_an_error_that_names_its_place(members: Any, names: list[str]) -> None:
    refused(members, *names)


def test_one_wrong_server_leaves_the_others() -> None:
    file = parsed({"mcpServers": {"a": {"command": "run"}, "b": {}, "c": {"command": "${MISSING}"}}})
    assert file.server("a").name == "a"
    with pytest.raises(ConfigurationError, match=naming("b", "c", "MISSING")):
        file.check()


def test_a_member_that_is_unknown_is_named_with_the_nearest_and_those_of_hosts_are_not() -> None:
    file = parsed(
        {
            "mcpServers": {
                "a": {"command": "run", "arg": [], "headers": {}, "alwaysAllow": [], "timeout": 60},
                "b": {"url": "https://x", "cwd": "y", "shade": {}},
            }
        }
    )
    assert len(file.warnings) == 4
    assert unnamed(file.warnings[0], "a", "arg", "args") == []
    assert unnamed(file.warnings[1], "a", "headers") == []
    assert unnamed(file.warnings[2], "b", "shade") == []
    assert unnamed(file.warnings[3], "b", "cwd") == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["line 1", "column 1"]),
        ('{\n  "mcpServers": {"a"}\n}', ["line 2"]),
        ('{ /* comment */ "a" 1}', ["line 1", "column 21"]),
        ("[]", ["mcpServers"]),
        ('{"mcpservers": {}}', ["mcpservers", "mcpServers"]),
        ("{}", ["mcpServers", "nothing"]),
        ('{"mcpServers": []}', ["mcpServers"]),
        ('{"mcpServers": {"a": {"url": "x"}, "a": {"url": "y"}}}', ["a", "twice"]),
        ("[" * 100_000, ["mcp.json"]),
    ],
)
def test_a_file_that_is_none_is_an_error_that_names_the_place(text: str, names: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=naming("mcp.json", *names)):
        parsed(text)


def test_a_server_that_the_file_has_not_is_an_error_with_the_nearest() -> None:
    file = parsed({"mcpServers": {"weather": {"command": "run"}}})
    with pytest.raises(ConfigurationError, match=naming("wether", "weather")):
        file.server("wether")


def test_a_file_is_read_once_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    content = b'\xef\xbb\xbf{"mcpServers": {"one": {"command": "run"}}}'
    path.write_bytes(content)
    assert [*read_mcp_json(str(path)).servers] == ["one"]
    assert path.read_bytes() == content


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.symlink_to("/dev/null")
    with pytest.raises(ConfigurationError, match=naming("mcp.json", "device")):
        read_mcp_json(path)
    file = {"mcpServers": {"one": {"command": "run", "envFile": "/dev/null"}}}
    assert unnamed(str(parsed(file).errors["one"]), "one", "/dev/null", "device") == []


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    with pytest.raises(FileNotFoundError):
        read_mcp_json(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=naming("mcp.json", "UTF-8")):
        read_mcp_json(path)
    path.write_bytes(b" " * (MAX_CONFIGURATION + 1))
    with pytest.raises(ConfigurationError, match=naming("mcp.json", str(MAX_CONFIGURATION))):
        read_mcp_json(path)


def test_secrets_are_not_shown() -> None:
    shown = repr(
        parsed(
            {
                "mcpServers": {
                    "a": {"command": "run", "env": {"A": "secret"}},
                    "b": {"url": "u", "headers": {"h": "secret"}},
                }
            }
        )
    )
    assert "secret" not in shown


def test_a_large_file_takes_linear_time() -> None:
    parsed('{"mcpServers": {"a": {"command": "' + '\\"' * 500_000 + '"}}}')
    with pytest.raises(ConfigurationError):
        parsed("/*" * 500_000)


def test_the_servers_of_all_lists_of_a_file_are_read_and_the_first_of_a_name_counts(tmp_path: Path) -> None:
    one, two = {"command": "one"}, {"type": "http", "url": "https://two.example/mcp"}
    path = tmp_path / "mcp.json"
    lists = {
        "servers": {"two": two, "both": two},
        "mcpServers": {"one": one, "both": one},
        "mcp": {"servers": {"three": one}},
    }
    path.write_text(json.dumps({**lists, "context_servers": ["no servers"]}))
    found = read_mcp_json(path)
    assert found.servers.keys() == {"one", "two", "three", "both"}
    assert isinstance(found.servers["both"], CommandServer)
    assert any("'both'" in text for text in found.warnings)
    assert any("context_servers" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"oauth": {}}, OAuthClient()),
        # as Claude Code writes it
        (
            {"oauth": {"clientId": "a", "callbackPort": 8123, "scopes": "read write"}},
            OAuthClient(client_id="a", scopes=("read", "write"), redirect_port=8123),
        ),
        # as Cursor writes it
        (
            {"auth": {"CLIENT_ID": "a", "CLIENT_SECRET": "${SECRET}", "scopes": ["read", "write"]}},
            OAuthClient(client_id="a", client_secret="s3cret", scopes=("read", "write")),
        ),
        ({"auth": None}, None),
        ({}, None),
    ],
)
def test_the_client_for_logging_in_is_read(
    members: dict[str, Any], expected: OAuthClient | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    server = one({"url": "https://example.org/mcp", **members})
    assert isinstance(server, UrlServer)
    assert server.oauth == expected
    assert "s3cret" not in repr(server)


@pytest.mark.parametrize(
    "members",
    [
        {"oauth": "a"},
        {"oauth": {"clientId": 5}},
        {"oauth": {"callbackPort": "8123"}},
        {"oauth": {"callbackPort": 70000}},
        {"oauth": {"callbackPort": True}},
        {"oauth": {"scopes": 5}},
        {"oauth": {"scopes": [5]}},
        {"oauth": {}, "auth": {}},
    ],
)
def test_a_malformed_client_for_logging_in_is_an_error(members: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        one({"url": "https://example.org/mcp", **members})


def test_members_of_a_client_that_are_not_used_are_named() -> None:
    members = {"url": "https://example.org/mcp", "oauth": {"authServerMetadataUrl": "https://example.org/metadata"}}
    warnings = parsed({"mcpServers": {"one": members}}).warnings
    assert any("authServerMetadataUrl" in warning for warning in warnings)
