"""The program of docs/logins.md does what the page says, and its tables are complete."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from joserfc.jwk import ECKey
from pages import Names, Page
from serving import served

from trio_mcp import HttpOptions, Server
from trio_mcp.auth import OAuth
from trio_mcp.errors import AuthorizationErrorKind

PAGE = Page("logins")
TESTS = Path(__file__).parent


@cache
def page() -> Names:
    return PAGE.run()


async def test_a_program_without_its_user_says_what_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRIO_MCP_AUTH_DIR", str(tmp_path))

    async def nobody(headers: object) -> None:
        return None

    async with served(Server("notes", http=HttpOptions(authenticate=nobody))) as url:
        assert await page()["nightly"](url) == f"log in first: trio-mcp login {url}"


async def test_the_settings_on_the_page_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await page()["in_a_window"].browser("https://login.example.com") is None
    assert await page()["employee"].id_token()
    monkeypatch.setenv("ROBOT_KEY", json.dumps(ECKey.generate_key("P-256").as_dict(private=True)))
    made = [page()[name] for name in ("robot", "pod", "employee", "in_a_window")]
    for settings in (*made, page()["signing_robot"]()):
        async with settings.open("https://mcp.example.com/mcp") as credentials:
            assert credentials.shown == "https://mcp.example.com/mcp"


def test_the_table_of_kinds_has_each() -> None:
    table = PAGE.text.partition("## What goes wrong")[2].partition("## ")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == {kind.value for kind in AuthorizationErrorKind}


def test_the_table_of_settings_has_each() -> None:
    table = PAGE.text.partition("## A user")[2].partition("### ")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)=", row)}
    assert named == {field.name for field in fields(OAuth)}


def test_each_test_that_the_table_of_threats_names_exists() -> None:
    table = PAGE.text.partition("## Threats")[2]
    named = set(re.findall(r"`(test_\w+)`", table))
    files = set(re.findall(r"`tests/([\w/.]+)`", table))
    defined = {
        name
        for file in TESTS.rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    }
    assert len(named) > 10
    assert named - defined == set()
    assert all((TESTS / file).exists() for file in files)
