"""`trio-mcp serve --resource --auth`: what authenticates the callers of a file that says nothing of it."""

from __future__ import annotations

import pytest

from trio_mcp.auth import ProtectedResource
from trio_mcp.cli.commands.serve import resource_of
from trio_mcp.cli.errors import CommandError

RESOURCE = "https://mcp.example.com/mcp"


def test_the_two_options_make_a_protected_resource() -> None:
    found = resource_of(RESOURCE, "jwt:https://login.example.com")
    assert isinstance(found, ProtectedResource)
    assert found.resource == RESOURCE
    assert b"https://login.example.com" in found.documents([])["/.well-known/oauth-protected-resource"]
    assert resource_of(None, None) is None


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
