"""`trio-mcp serve --resource --auth`: what authenticates the callers of a file that says nothing of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from naming import unnamed

from trio_mcp.auth import ProtectedResource
from trio_mcp.cli.command import CommandError, Status
from trio_mcp.cli.commands.serve import resource_of
from trio_mcp.cli.program import main

RESOURCE = "https://mcp.example.com/mcp"


def test_the_two_options_make_a_protected_resource() -> None:
    found = resource_of(RESOURCE, "jwt:https://login.example.com")
    assert isinstance(found, ProtectedResource)
    assert found.resource == RESOURCE
    assert b"https://login.example.com" in found.documents([])["/.well-known/oauth-protected-resource"]
    assert resource_of(None, None) is None


@pytest.mark.parametrize(
    ("scopes", "listed"), [([], ["read"]), (["all"], ["read", "write"]), (["read", "more"], ["more", "read"])]
)
def test_scopes_are_required_and_offered(scopes: list[str], listed: list[str]) -> None:
    found = resource_of(RESOURCE, "jwt:https://login.example.com", ["read"], scopes)
    assert found is not None
    assert found.required == {"read"}
    document = json.loads(found.documents(["write"])["/.well-known/oauth-protected-resource"])
    assert document["scopes_supported"] == listed


@pytest.mark.parametrize("options", [{"required": ["read"]}, {"scopes": ["all"]}])
def test_scopes_without_tokens_are_an_error(options: dict[str, list[str]]) -> None:
    with pytest.raises(CommandError, match="--auth"):
        resource_of(None, None, **options)


@pytest.mark.parametrize("option", ["--required-scope", "--scope"])
def test_a_wrong_scope_names_its_option(
    option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--resource", RESOURCE, "--auth", "jwt:https://login.example.com", option, "a b"]
    assert main(["serve", "app.py", *words]) == Status.USAGE
    assert unnamed(capsys.readouterr().err, option, "a b") == []


@pytest.mark.parametrize(
    ("resource", "auth", "text"),
    [
        (RESOURCE, None, "--auth"),
        (None, "jwt:https://login.example.com", "--resource"),
        (RESOURCE, "https://login.example.com", "jwt:"),
        (RESOURCE, "static:abc", "jwt:"),
    ],
)
def test_a_command_line_that_cannot_work_says_what_to_write(resource: str | None, auth: str | None, text: str) -> None:
    with pytest.raises(CommandError, match=text):
        resource_of(resource, auth)


@pytest.mark.parametrize(
    ("resource", "auth"), [("https://MCP.example.com/mcp", "jwt:https://a.test"), (RESOURCE, "jwt:http://a.test")]
)
def test_a_url_that_cannot_be_used_is_an_error(resource: str, auth: str) -> None:
    with pytest.raises(ValueError, match="https://"):
        resource_of(resource, auth)
