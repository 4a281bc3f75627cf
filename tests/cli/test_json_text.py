"""Changing the file of a host: what is not of the server that changes stays as it is, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trio_mcp.cli.hosts import HOSTS, read_file, with_server, without_server
from trio_mcp.json_value import JsonValue

OURS: dict[str, JsonValue] = {"command": "python", "args": ["é", "{}"]}
LINES = """\
{
    "mcpServers": {
        "a": {"command": "x", "args": [ 1.50, "}," ]},
        "b": { }
    },
    "z" : [1,2]
}
"""
FILES = {
    "lines": LINES,
    "tabs": LINES.replace("    ", "\t"),
    "CRLF": LINES.replace("\n", "\r\n"),
    "BOM": "\ufeff" + LINES,
    "one line": '{"z": 1e2, "mcpServers": {"a": {"command": "x"}, "b": {}}}',
    "tight": '{"mcpServers":{"a":{},"b":{}},"z":0.0}',
    "a name with an escape": '{"mcp\\u0053ervers": {"a": {}, "b": {}}, "z": "\\ud800"}',
}
NEW = {
    "no file": "",
    "white space": "\n",
    "nothing in it": "{}",
    "no servers": '{"theme": {"a": 1}}',
    "none of them": '{\n  "mcpServers": {},\n  "theme": "dark"\n}\n',
    "null": '{"mcpServers": null, "theme": 1.0}',
}


def in_file(folder: Path, text: str) -> Path:
    path = folder / "mcp.json"
    path.write_bytes(text.encode())
    return path


def added(path: Path, name: str = "ours") -> str:
    return with_server(read_file(path, HOSTS["cursor"]), name, dict(OURS)).after


def removed(path: Path, name: str) -> str:
    return without_server(read_file(path, HOSTS["cursor"]), name).after


def parsed(text: str) -> dict[str, JsonValue]:
    value: dict[str, JsonValue] = json.loads(text.removeprefix("\ufeff"))
    return value


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_a_server_is_added_and_removed_and_the_text_is_the_same_as_before(text: str, tmp_path: Path) -> None:
    after = added(in_file(tmp_path, text))
    assert parsed(after) == {
        **parsed(text),
        "mcpServers": {"a": parsed(text)["mcpServers"]["a"], "b": {}, "ours": OURS},
    }  # type: ignore[index, call-overload]
    assert removed(in_file(tmp_path, after), "ours") == text


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_server_is_replaced_or_removed_and_the_others_stay(text: str, name: str, tmp_path: Path) -> None:
    path, servers = in_file(tmp_path, text), parsed(text)["mcpServers"]
    assert isinstance(servers, dict)
    assert parsed(added(path, name)) == {**parsed(text), "mcpServers": {**servers, name: OURS}}
    after, others = removed(path, name), {each: value for each, value in servers.items() if each != name}
    assert parsed(after) == {**parsed(text), "mcpServers": others}
    (other,) = others
    assert text[text.index(f'"{other}"') :][:6] in after


@pytest.mark.parametrize("text", NEW.values(), ids=NEW)
def test_the_first_server_of_a_file_is_added(text: str, tmp_path: Path) -> None:
    after = added(in_file(tmp_path, text))
    assert parsed(after) == {**parsed(text.strip() or "{}"), "mcpServers": {"ours": OURS}}
    only = removed(in_file(tmp_path, after), "ours")
    assert parsed(only)["mcpServers"] == {}


def test_a_new_server_looks_like_the_lines_around_it(tmp_path: Path) -> None:
    lines = added(in_file(tmp_path, FILES["CRLF"])).split("\r\n")
    assert lines[2:6] == [
        '        "a": {"command": "x", "args": [ 1.50, "}," ]},',
        '        "b": { },',
        '        "ours": {',
        '            "command": "python",',
    ]
