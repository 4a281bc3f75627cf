"""`trio-mcp store` shows how much a file keeps, finds what is wrong with it, and never shows what it keeps."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
import trio

from trio_mcp.cli.command import Status
from trio_mcp.cli.program import main
from trio_mcp.session import KeyRing, MemoryBudget
from trio_mcp.stores import Append, Put, Record, open_store, sqlite_schema

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a store with two records, one of which has expired, and a log."""
    monkeypatch.delenv("TRIO_MCP_KEYS", raising=False)
    path = tmp_path / "state.db"

    async def fill() -> None:
        async with open_store(str(path), KeyRing([KEY]), MemoryBudget()) as store:
            await store.write([Put(Record("task", "a", b"secret" * 100)), Put(Record("task", "b", b"", "", 1000.0))])
            await store.write([Append("call", "a", 1, [b"secret", b"secret"], time.time() + 1000)])

    trio.run(fill)
    return path


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits long for another connection."""
    monkeypatch.setattr(sqlite_schema, "BUSY_SECONDS", 0.05)


def one_error(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr."""
    (line,) = capsys.readouterr().err.splitlines()
    return line


def output(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().out
    assert "secret" not in text
    return text


def test_list_shows_how_much_there_is_of_each_kind(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "list", str(file)]) == Status.OK
    head, calls, tasks = output(capsys).splitlines()
    assert head.split() == ["kind", "form", "number", "entries", "expired", "bytes", "oldest", "newest"]
    assert calls.split()[:5] == ["call", "logs", "1", "2", "0"]
    assert tasks.split()[:4] == ["task", "records", "2", "1"]


def test_list_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "list", str(file), "--json"]) == Status.OK
    calls, tasks = json.loads(output(capsys))
    assert {**calls, "kind": "call", "form": "logs", "number": 1, "entries": 2, "expired": 0} == calls
    assert {**tasks, "kind": "task", "form": "records", "number": 2, "entries": None, "expired": 1} == tasks
    assert tasks["size"] > 600
    assert abs(tasks["oldest"] - time.time()) < 100


@pytest.mark.parametrize(
    ("key", "status", "opened"), [(KEY, Status.OK, "4 of 4"), (OTHER_KEY, Status.TOOL_ERROR, "0 of 4")]
)
def test_check_says_whether_the_keys_open_everything(
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    key: bytes,
    status: Status,
    opened: str,
) -> None:
    monkeypatch.setenv("TRIO_MCP_KEYS", base64.urlsafe_b64encode(key).decode())
    assert main(["store", "check", str(file)]) == status
    assert opened in output(capsys)


def test_check_without_keys_looks_at_the_file_alone(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "check", str(file), "--json"]) == Status.OK
    assert json.loads(output(capsys)) == {"sound": True, "findings": [], "values": None}


def test_check_finds_an_index_that_lacks_a_row(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA writable_schema = ON")
        other.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'owner, key)', 'key, owner)') WHERE name = 'records_by_owner'"
        )
        other.commit()
    assert main(["store", "check", str(file), "--json"]) == Status.TOOL_ERROR
    assert json.loads(output(capsys))["findings"]


@pytest.mark.parametrize("action", ["list", "vacuum"])
def test_of_a_url_of_no_known_store_only_the_scheme_is_shown(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", action, "postgrsql://app:hidden@db/shop?password=hidden"]) != Status.OK
    shown = capsys.readouterr().err
    assert "postgrsql" in shown
    assert "hidden" not in shown


def test_vacuum_gives_room_back_and_keeps_what_lives(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(file)) as other:
        other.execute("UPDATE records SET value = zeroblob(1000000) WHERE key = 'b'")
        other.commit()
    assert main(["store", "vacuum", str(file), "--json"]) == Status.OK
    sizes = json.loads(output(capsys))
    assert sizes["after"] < sizes["before"] / 2
    assert sizes["after"] == file.stat().st_size
    assert main(["store", "list", str(file), "--json"]) == Status.OK
    assert [(each["kind"], each["number"]) for each in json.loads(output(capsys))] == [("call", 1), ("task", 1)]


def test_vacuum_says_that_a_file_is_locked(file: Path, capsys: pytest.CaptureFixture[str], short_waits: None) -> None:
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert main(["store", "vacuum", str(file)]) == Status.UNREACHABLE
    assert "locked" in one_error(capsys)


def test_vacuum_names_another_reading_process(
    file: Path, capsys: pytest.CaptureFixture[str], short_waits: None
) -> None:
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM records").fetchall()
        assert main(["store", "vacuum", str(file)]) == Status.OK
    assert str(file) in one_error(capsys)


@pytest.mark.parametrize("action", ["list", "check", "vacuum"])
def test_a_file_that_is_no_store_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str) -> None:
    text, empty = tmp_path / "text.db", tmp_path / "empty.db"
    text.write_text("no database " * 1000)
    empty.touch()
    for path, status in ((text, Status.UNREACHABLE), (empty, Status.UNREACHABLE), (tmp_path / "none.db", Status.USAGE)):
        assert main(["store", action, str(path)]) == status
        said = capsys.readouterr()
        assert said.out == ""
        assert len(said.err.splitlines()) == 1
    assert text.read_text().startswith("no database")
    assert not (tmp_path / "none.db").exists()


def test_the_error_for_a_path_that_is_no_file_names_its_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for name, word in ((str(tmp_path), "folder"), (str(pipe), "regular file"), ("~no such user/x", "home directory")):
        assert main(["store", "list", name]) == Status.USAGE
        assert word in one_error(capsys)


STRANGE = {
    "kind of bytes": "UPDATE records SET kind = x'ff00'",
    "kind with control characters": "UPDATE records SET kind = char(27) || '[2J' || char(10) || 'task'",
    "number as a value": "UPDATE records SET value = 5",
    "text as a value": "UPDATE records SET value = 'text'",
    "text as a time": "UPDATE records SET written_at = 'never', expires_at = 'never'",
    "text as a number": "UPDATE entries SET number = 'one' || number",
    "key that is no UTF-8": "UPDATE records SET key = CAST(x'fffe' || key AS TEXT)",
    "schema below zero": "PRAGMA user_version = -5",
}


@pytest.mark.parametrize("action", ["list", "check", "vacuum"])
@pytest.mark.parametrize("change", STRANGE.values(), ids=STRANGE)
def test_what_another_program_has_written_into_a_file_is_no_bug(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, action: str, change: str
) -> None:
    monkeypatch.setenv("TRIO_MCP_KEYS", base64.urlsafe_b64encode(KEY).decode())
    with closing(sqlite3.connect(file)) as other:
        other.execute(change)
        other.commit()
    assert main(["store", action, str(file)]) in (Status.OK, Status.TOOL_ERROR, Status.UNREACHABLE)
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert len(said.out.splitlines()) <= 3
    assert len(said.err.splitlines()) <= 1
