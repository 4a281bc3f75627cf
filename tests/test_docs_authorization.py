"""The program of docs/authorization.md does what the page says, and each threat of the page has its tests."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from pages import Names, Page

from trio_mcp import Caller
from trio_mcp.testing import MockClient, TestIssuer

PAGE = Page("authorization")
TESTS = Path(__file__).parent


@cache
def page() -> Names:
    return PAGE.run()


async def test_a_writer_writes() -> None:
    writer = MockClient(caller=Caller("alice", scopes=["notes:read", "notes:write"]))
    assert (await writer.call((page()["server"], "write"), text="x")).text == "written for alice"


async def test_the_tests_on_the_page_pass() -> None:
    await page()["test_a_reader_cannot_write"]()
    await page()["test_a_token_for_another_server_is_refused"](TestIssuer())


async def test_the_servers_on_the_page_have_what_the_page_says() -> None:
    behind, entra = page()["behind"], page()["entra"]
    place = "https://example.com/tools/.well-known/oauth-protected-resource"
    assert behind.challenge(root="/tools")["resource_metadata"] == place
    assert entra.challenge()["scope"] == f"api://{page()['CLIENT_ID']}/notes.read"
    hook = page()["private"].http.authenticate
    assert await hook({"authorization": "Bearer a-long-random-token"}) == Caller("ci")
    assert await page()["is_employee"]({"company": "example"}) is not None
    assert await page()["is_employee"]({}) is None


def test_each_test_that_the_table_of_threats_names_exists() -> None:
    table = PAGE.text.partition("## Threats")[2]
    named = set(re.findall(r"`(test_\w+)`", table))
    defined = {
        name
        for file in TESTS.rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    }
    assert len(named) > 10
    assert named - defined == set()


@pytest.mark.parametrize("code", [400, 401, 403, 503])
def test_the_page_has_each_status(code: int) -> None:
    assert f" {code}" in PAGE.prose
