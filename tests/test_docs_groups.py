"""The code of docs/groups.md is one program, and does what the page says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from pages import Names, Page
from programs import Programs, programs

from trio_mcp import ClientGroup, Context, Server
from trio_mcp.base.backoff import STABLE_AFTER
from trio_mcp.compose import connection, group, lists
from trio_mcp.mcp_json.entries import ALIASES, KNOWN
from trio_mcp.relay.mirroring import OPEN_SECONDS

__all__ = ["programs"]

PAGE = Page("groups")
BOUND = 20.0


@pytest.fixture
def page() -> Names:
    return PAGE.run()


@pytest.fixture
def path(tmp_path: Path, programs: Programs) -> str:
    """A file with the two servers of the page, both as commands."""
    files, weather = Server("files"), Server("weather")

    @files.tool
    async def read(path: str, ctx: Context) -> str:
        await ctx.warning("it is old")
        return f"content of {path}"

    @files.tool
    async def delete(path: str) -> str:
        return f"deleted {path}"

    @files.resource("config://app")
    async def config() -> str:
        return "x"

    @weather.tool
    async def forecast() -> str:
        return "rain"

    programs.servers = {"files": files, "weather": weather}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {name: {"command": name} for name in programs.servers}}))
    return str(file)


async def test_the_first_program_lists_and_calls(page: Names, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(BOUND):
        await page["main"](path)
    assert capsys.readouterr().out.splitlines() == [
        "files_read",
        "files_delete",
        "weather_forecast",
        "content of notes.txt",
    ]


async def test_a_filter_leaves_tools_out(page: Names, path: str) -> None:
    with trio.fail_after(BOUND):
        assert await page["read_only"](path) == ["files_read", "weather_forecast"]


async def test_a_server_that_is_lost_is_named(
    page: Names, path: str, programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    with trio.fail_after(BOUND):
        assert await page["ask"](path) == "rain"
        programs.broken["weather"] = OSError("no power")
        assert await page["ask"](path) == "without weather"
    assert "weather unavailable no power" in capsys.readouterr().out.splitlines()


async def test_a_handler_knows_its_server(page: Names, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(BOUND):
        await page["call_with_logs"](path)
    assert capsys.readouterr().out.splitlines() == ["files warning it is old"]


async def test_changes_are_followed(
    page: Names, path: str, programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = ""
    with trio.fail_after(BOUND):
        async with ClientGroup.from_file(path) as opened, trio.open_nursery() as nursery:
            nursery.start_soon(page["follow"], opened)
            while "config" not in printed:
                programs.servers["files"].resource_updated("config://app")
                await trio.testing.wait_all_tasks_blocked()
                printed += capsys.readouterr().out
            nursery.cancel_scope.cancel()
    assert "updated config://files/app" in printed


def test_a_group_is_made_of_targets_and_a_file_is_read(page: Names, path: str) -> None:
    assert [*page["make_group"](Server("notes"))] == ["notes", "files", "weather"]
    assert page["commands"](path) == {"files": ("files",), "weather": ("weather",)}


def test_the_example_of_a_file_is_one(page: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILES_TOKEN", "a")
    monkeypatch.setenv("WEATHER_TOKEN", "b")
    example = PAGE.text.split("```json\n")[1].split("```")[0]
    file = tmp_path / "mcp.json"
    file.write_text(example)
    assert [*ClientGroup.from_file(file)] == ["files", "weather"]


def test_the_page_has_every_member_of_a_file() -> None:
    table = PAGE.text.split("## Files of hosts")[1]
    assert [name for name in KNOWN - {"environment"} if f"`{name}`" not in table] == []
    assert "environment" in ALIASES


@pytest.mark.parametrize(
    "text",
    [
        f"up to {connection.ATTEMPTS} attempts",
        f"at most {connection.BACKOFF.longest:g} seconds apart",
        f"at most `open_timeout` seconds ({group.OPEN_TIMEOUT:g})",
        f"a connection of {STABLE_AFTER:g} seconds",
        f"`timeout` seconds ({lists.LIST_TIMEOUT:g})",
    ],
)
def test_the_page_has_the_limits_of_the_code(text: str) -> None:
    assert text in PAGE.prose


def test_the_page_on_limits_has_the_times_of_kept_connections() -> None:
    limits = Page("limits").text
    assert f"| the same for the lists of a [mounted proxy](composition.md#mount-a-proxy) | {OPEN_SECONDS:g} |" in limits
    assert f"before it is used | {connection.LISTEN_SECONDS:g} |" in limits
