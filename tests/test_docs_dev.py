"""The page on `trio-mcp dev`: its program runs, it names every option and every setting, and its limits are true."""

from __future__ import annotations

import click
import trio
from pages import Page

from trio_mcp import Client
from trio_mcp.cli.commands.dev import command_line
from trio_mcp.cli.dev.child import HAND_OVER_SECONDS
from trio_mcp.cli.dev.parent import BACKOFF, END_SECONDS
from trio_mcp.server.lifespan import LIFESPAN_EXIT_SECONDS

PAGE = Page("dev")


async def test_the_server_of_the_page_answers() -> None:
    with trio.fail_after(10):
        async with Client.connect(PAGE.run()["server"]) as client:
            assert (await client.call_tool("free_rooms", {"city": "Lisbon"})).data == 3


def test_the_page_names_every_option() -> None:
    options = [option for each in command_line.params if isinstance(each, click.Option) for option in each.opts]
    assert [option for option in options if option not in PAGE.text and not option.startswith("-h")] == []


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert f"{LIFESPAN_EXIT_SECONDS:g} seconds" in PAGE.text
    assert f"at most {HAND_OVER_SECONDS:g} seconds" in PAGE.text
    assert f"and {END_SECONDS:g} seconds" in PAGE.text
    assert f"from {BACKOFF.first:g} to {BACKOFF.longest:g} seconds" in PAGE.text
