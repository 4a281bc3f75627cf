"""`trio-mcp store` and `trio-mcp serve --store` with the stores on a network."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import trio

from trio_mcp.session import KeyRing, MemoryBudget
from trio_mcp.stores import Append, Put, Record, open_store

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
BOUND = 60
CLI = [sys.executable, "-m", "trio_mcp.cli"]
SERVER = """
from trio_mcp import Server

server = Server("{name}", version="1")


@server.tool
async def echo(text: str) -> str:
    return text
"""


def environment(key: bytes | None = KEY) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if name != "TRIO_MCP_KEYS"}
    keys = {} if key is None else {"TRIO_MCP_KEYS": base64.urlsafe_b64encode(key).decode()}
    return {**others, **keys, "PYTHONPATH": os.pathsep.join(sys.path)}


def command(*words: str, key: bytes | None = KEY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *words], capture_output=True, text=True, timeout=BOUND, env=environment(key), check=False
    )


async def fill(url: str, server: str) -> None:
    async with open_store(url, KeyRing([KEY]), MemoryBudget(), server) as store:
        await store.write(
            [
                Put(Record("task", "a*?[b]", b"secret", "owner")),
                Put(Record("task", "c", b"value")),
                Append("call", "log", 5, [b"1", b"2"]),
                Append("call", "log", 7, [b"3"], keep=2),
            ]
        )


def test_a_store_is_listed_and_checked_without_showing_what_is_in_it(database: str) -> None:
    name = f"listed [{database[:5]}]"
    trio.run(fill, database, name)
    named = f"{database}?namespace={name}"
    listed = command("store", "list", named, "--json")
    assert listed.returncode == 0, listed.stderr
    kinds = {each["kind"]: each for each in json.loads(listed.stdout)}
    assert kinds["task"]["number"] == 2
    assert (kinds["call"]["number"], kinds["call"]["entries"]) == (1, 2)
    assert kinds["task"]["size"] > 0
    shown = command("store", "list", named)
    assert "task" in shown.stdout
    assert "secret" not in shown.stdout
    checked = command("store", "check", named, "--json")
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout) == {"sound": True, "findings": [], "values": {"values": 4, "closed": 0}}
    closed = command("store", "check", named, "--json", key=OTHER_KEY)
    assert closed.returncode == 1
    assert json.loads(closed.stdout)["values"] == {"values": 4, "closed": 4}
    assert "no keys" in command("store", "check", named, key=None).stdout


def test_of_several_stores_in_one_database_one_must_be_named(database: str) -> None:
    for name in ("several one", "several two"):
        trio.run(fill, database, name)
    ended = command("store", "list", database)
    assert ended.returncode != 0
    assert "several one" in ended.stderr
    assert "?namespace=" in ended.stderr


def test_a_namespace_that_has_nothing_is_an_error_that_names_those_that_there_are(database: str) -> None:
    trio.run(fill, database, "meant")
    ended = command("store", "list", f"{database}?namespace=ment")
    assert ended.returncode != 0
    assert "'ment'" in ended.stderr
    assert "'meant'" in ended.stderr


def test_a_database_is_not_shrunk(database: str) -> None:
    ended = command("store", "vacuum", database)
    assert ended.returncode != 0
    assert "files" in ended.stderr


def test_a_database_that_is_away_is_an_error_in_one_line() -> None:
    for url in ("redis://127.0.0.1:1/0", "postgresql://127.0.0.1:1/shop"):
        ended = command("store", "list", url)
        assert ended.returncode != 0
        assert "127.0.0.1" in ended.stderr
        assert "Traceback" not in ended.stderr


async def test_a_server_that_names_no_store_takes_that_of_the_option(database: str, tmp_path: Path) -> None:
    name = f"served {database[:5]}"
    (tmp_path / "served.py").write_text(SERVER.format(name=name))
    line = [*CLI, "serve", str(tmp_path / "served.py"), "--port", "0", "--store", database]
    with trio.fail_after(BOUND):
        process = await trio.lowlevel.open_process(line, stderr=subprocess.DEVNULL, env=environment())
        try:
            async with open_store(database, KeyRing([KEY]), MemoryBudget(), name) as store:
                while not await store.nodes():  # type: ignore[attr-defined]  # noqa: ASYNC110
                    await trio.sleep(0.1)
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
                # It has said that it has ended.
                assert not await store.nodes()  # type: ignore[attr-defined]
        finally:
            process.kill()


def test_several_servers_do_not_share_a_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(SERVER.format(name=name))
    servers = [f"/{name}={tmp_path / name}.py" for name in ("one", "two")]
    ended = command("serve", *servers, "--port", "0", "--store", str(tmp_path / "state.db"))
    assert ended.returncode != 0
    assert "database" in ended.stderr
    assert not (tmp_path / "state.db").exists()
