"""The program of docs/oauth-proxy.md does what the page says, and each threat of the page has its tests."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import httpx2
import pytest
from pages import Names, Page

from trio_mcp import Caller
from trio_mcp.auth import ENTRA, GITHUB, GOOGLE
from trio_mcp.auth.proxy.sealed import Access, Client, Code, Login, Refresh
from trio_mcp.testing import MockClient

PAGE = Page("oauth-proxy")
TESTS = Path(__file__).parent


@cache
def page() -> Names:
    return PAGE.run()


async def test_the_tool_says_who_calls() -> None:
    served = PAGE.blocks[0]
    names: Names = {}
    exec(compile(served, "notes.py", "exec", dont_inherit=True), names)
    octocat = MockClient(caller=Caller("583231", claims={"login": "octocat"}))
    assert (await octocat.call((names["server"], "whoami"))).text == "octocat is user 583231 of GitHub"


@pytest.mark.parametrize(
    ("status", "state", "expected"),
    [(200, "active", {"login": "octocat"}), (200, "pending", None), (404, "active", None)],
)
async def test_members_of_an_organization_may_log_in(
    monkeypatch: pytest.MonkeyPatch, status: int, state: str, expected: object
) -> None:
    async def get(self: httpx2.AsyncClient, url: str, headers: dict[str, str]) -> httpx2.Response:
        assert headers == {"authorization": "Bearer a-token"}
        return httpx2.Response(status, json={"state": state})

    monkeypatch.setattr(httpx2.AsyncClient, "get", get)
    assert await page()["member"]({"login": "octocat"}, "a-token") == expected


def test_the_server_of_the_page_has_the_routes_of_the_proxy() -> None:
    hook = page()["server"].http.authenticate
    assert "/mcp/oauth/callback" in [route.path for route in hook.routes(["/mcp"], list)]


@pytest.mark.parametrize("provider", [GITHUB, GOOGLE, ENTRA("contoso.com")])
def test_the_page_has_the_claims_of_each_provider(provider: object) -> None:
    row = {"GitHub": "`GITHUB`", "Google": "`GOOGLE`", "Microsoft": "`ENTRA(tenant)`"}[provider.name]  # type: ignore[attr-defined]
    (cells,) = re.findall(rf"^\| {re.escape(row)} \| (.*)$", PAGE.text, re.MULTILINE)
    assert re.findall(r"`(\w+)`", cells) == [provider.principal, *provider.claims]  # type: ignore[attr-defined]


def test_the_page_has_the_lifetimes() -> None:
    day, minute = 86_400, 60
    assert (90 * day, 30 * day) == (Client.LIFETIME, Refresh.LIFETIME)
    assert (10 * minute, minute, 60 * minute) == (Login.LIFETIME, Code.LIFETIME, Access.LIFETIME)
    for text in ("90 days", "10 minutes each", "60 seconds, once", "1 hour", "30 days"):
        assert f"| {text}" in PAGE.text


def test_each_test_that_the_table_of_threats_names_exists() -> None:
    table = PAGE.text.partition("## Threats")[2]
    named = set(re.findall(r"`(test_\w+)`", table))
    files = ("auth/test_oauth_proxy.py", "wires/auth/test_consent_in_chromium.py")
    text = "\n".join((TESTS / file).read_text("utf-8") for file in files)
    defined = set(re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE))
    assert len(named) > 15
    assert named - defined == set()
