"""The code of docs/stores.md is one program, and does what the page says."""

from __future__ import annotations

from pages import Page

PAGE = Page("stores")


async def test_the_main_function_runs() -> None:
    await PAGE.run()["main"]()


def test_the_server_keeps_its_state_in_the_file_of_the_page() -> None:
    assert PAGE.run()["server"].options.store == "state.db"
