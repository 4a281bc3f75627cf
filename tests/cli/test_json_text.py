"""Changing the file of a host: what is not of the server that changes stays as it is, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from trio_mcp.base.values import JsonValue
from trio_mcp.cli.hosts import HOSTS, ConfigFile, read_file, with_server, without_server
from trio_mcp.compose import find_comments, parse_jsonc

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


# comments and trailing commas

COMMENTED = {
    "a comment behind the last member": """\
{
  // "c": the old one
  "mcpServers": {
    "a": {}, // first
    "b": {} // last, see https://x.example/"{"
    // end
  }
}
""",
    "trailing commas": """\
{
  "mcpServers": {
    "a": {"args": [1, 2,],},
    "b": {}, // last
  },
}
""",
    "a comment before the comma": '{"mcpServers": {"a": {} /* 1 */, "b": {} /* 2 */ , /* 3 */ } /* 4 */ }',
    "commas first": '{"mcpServers": {\n    "a": {} // 1\n  , "b": {} // 2\n  }}',
    "all in one line": '{"mcpServers":{"a":{},"b":{}/**/}}//',
    "slashes in strings": '{"mcpServers": {"a": {"command": "//,}"}, "b": {}}, "z": "/* no */"} // yes',
    "a bracket in a comment before all": '// {"mcpServers": {}}\n/* { */{"mcpServers": {"a": {}, "b": {}}}',
}
COMMENTED |= {f"{name}, CRLF": text.replace("\n", "\r\n") for name, text in COMMENTED.items()}
EMPTY = {
    "a line comment": '{\n  "mcpServers": {\n    // none yet\n  }\n}\n',
    "a line comment behind the bracket": '{"mcpServers": { // none yet\n}}',
    "a block comment": '{"mcpServers": {/* none yet */}}',
    "no servers": "{ // nothing\n}",
    "null": '{"mcpServers": /* later */ null, // none\n}',
}


def comments_in(text: str) -> list[str]:
    return [text[start:end] for start, end in find_comments(text)]


def value_of(text: str) -> dict[str, JsonValue]:
    value = parse_jsonc(text.removeprefix("\ufeff"), "the text")
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("text", COMMENTED.values(), ids=COMMENTED)
def test_a_file_with_comments_is_the_same_after_a_server_was_added_and_removed(text: str, tmp_path: Path) -> None:
    after = added(in_file(tmp_path, text))
    servers = value_of(text)["mcpServers"]
    assert isinstance(servers, dict)
    assert value_of(after) == {**value_of(text), "mcpServers": {**servers, "ours": OURS}}
    assert comments_in(after) == comments_in(text)
    assert removed(in_file(tmp_path, after), "ours") == text


@pytest.mark.parametrize("text", EMPTY.values(), ids=EMPTY)
def test_the_first_server_is_added_beside_comments(text: str, tmp_path: Path) -> None:
    after = added(in_file(tmp_path, text))
    assert value_of(after) == {**value_of(text), "mcpServers": {"ours": OURS}}
    only = removed(in_file(tmp_path, after), "ours")
    assert value_of(only) == {**value_of(text), "mcpServers": {}}
    assert comments_in(after) == comments_in(only) == comments_in(text)


@pytest.mark.parametrize("text", COMMENTED.values(), ids=COMMENTED)
@pytest.mark.parametrize("name", ["a", "b"])
def test_comments_outside_of_a_server_stay_when_it_is_replaced_or_removed(text: str, name: str, tmp_path: Path) -> None:
    path = in_file(tmp_path, text)
    assert comments_in(added(path, name)) == comments_in(removed(path, name)) == comments_in(text)


def test_a_new_server_follows_the_comment_behind_the_last_one(tmp_path: Path) -> None:
    after = added(in_file(tmp_path, COMMENTED["a comment behind the last member"]))
    lines = [line.strip() for line in after.splitlines()]
    assert lines[4:7] == ['"b": {}, // last, see https://x.example/"{"', "// end", '"ours": {']


def test_comments_inside_of_a_server_go_with_it(tmp_path: Path) -> None:
    text = '{"mcpServers": {"ours": {"command": /* old */ "x"}, // mine\n"b": {}}}'
    for after in (added(in_file(tmp_path, text)), removed(in_file(tmp_path, text), "ours")):
        assert comments_in(after) == ["// mine"]


@pytest.mark.parametrize("text", ["{,}", '{"a": 1,,}', '{"a": [,]}', '{"a":,}'])
def test_a_comma_without_a_value_before_it_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not valid JSON"):
        parse_jsonc(text, "the text")


@pytest.mark.parametrize("text", ["/* " * 200_000, '"' + '\\"' * 200_000, '{"a": "' + '\\"' * 200_000 + "\n"])
def test_a_text_with_something_that_does_not_end_is_refused_in_linear_time(text: str) -> None:
    # In quadratic time, it would take minutes.
    with pytest.raises(ValueError, match="not valid JSON"):
        parse_jsonc(text, "the text")


COMMENT = st.sampled_from(["// x\n", '// "a": {}, }\r\n', "/* y */", '/* {\n  "k" */', "//\n", "/**/"])
GAP = st.lists(st.one_of(st.sampled_from([" ", "\n", "\r\n", "\t", "\n    "]), COMMENT), max_size=3).map("".join)
NAMES = st.one_of(st.sampled_from(["a", "//", "/*", "é", "}", '"', "\\"]), st.text(max_size=3))


@st.composite
def jsonc(draw: st.DrawFn, value: JsonValue) -> str:
    """A text of this value, with white space, comments and trailing commas anywhere."""
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    parts = []
    for key, each in entries:
        name = f"{json.dumps(key)}{draw(GAP)}:{draw(GAP)}" if isinstance(value, dict) else ""
        parts.append(f"{draw(GAP)}{name}{draw(jsonc(each))}{draw(GAP)}")
    trailing = f",{draw(GAP)}" if parts and draw(st.booleans()) else ""
    content = ",".join(parts) + trailing or draw(GAP)
    return f"{{{content}}}" if isinstance(value, dict) else f"[{content}]"


SERVERS = st.dictionaries(
    NAMES.filter(lambda name: name != "ours"), st.sampled_from([{}, {"args": ["//", 1]}, [2]]), max_size=3
)  # type: ignore[arg-type]
DOCUMENTS = st.tuples(
    st.dictionaries(NAMES, st.sampled_from([1, "// }", {"x": [{}]}]), max_size=2), SERVERS, st.booleans()
).map(lambda drawn: {**drawn[0], "mcpServers": drawn[1]} if drawn[2] else {"mcpServers": drawn[1], **drawn[0]})


@given(data=st.data(), document=DOCUMENTS)
def test_every_comment_outside_of_a_server_survives_its_coming_and_going(
    data: st.DataObject, document: dict[str, JsonValue]
) -> None:
    text = data.draw(GAP) + data.draw(jsonc(document)) + data.draw(GAP)
    servers = document["mcpServers"]
    assert isinstance(servers, dict)
    assert value_of(text) == document

    def as_read(text: str) -> ConfigFile:
        value = value_of(text)
        members = value["mcpServers"]
        assert isinstance(members, dict)
        return ConfigFile(Path("mcp.json"), text, value, "mcpServers", members)

    after = with_server(as_read(text), "ours", dict(OURS)).after
    assert value_of(after) == {**document, "mcpServers": {**servers, "ours": OURS}}
    only = without_server(as_read(after), "ours").after
    assert value_of(only) == document
    assert comments_in(after) == comments_in(only) == comments_in(text)
    for name in servers:
        less = without_server(as_read(text), name).after
        assert value_of(less) == {
            **document,
            "mcpServers": {each: value for each, value in servers.items() if each != name},
        }
        replaced = with_server(as_read(text), name, dict(OURS)).after
        assert value_of(replaced) == {**document, "mcpServers": {**servers, name: OURS}}
