"""`trio-mcp serve --resource` with `--auth` or `--oauth-proxy`: what authenticates the callers of a file that does not say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from naming import unnamed

from trio_mcp.auth import ENTRA, GITHUB, GOOGLE, OAuthProvider, ProtectedResource
from trio_mcp.cli.command import CommandError, Status
from trio_mcp.cli.program import main
from trio_mcp.cli.protecting import provider_of, resource_of, secret_in, verifier_of
from trio_mcp.cli.targets.loading import load_python
from trio_mcp.cli.targets.target import PythonTarget

RESOURCE = "https://mcp.example.com/mcp"


def test_the_two_options_make_a_protected_resource() -> None:
    found = resource_of(RESOURCE, verifier_of("jwt:https://login.example.com", None, None, None))
    assert isinstance(found, ProtectedResource)
    assert found.resource == RESOURCE
    assert b"https://login.example.com" in found.documents([])["/.well-known/oauth-protected-resource"]
    assert resource_of(None, None) is None


@pytest.mark.parametrize(
    ("scopes", "listed"), [([], ["read"]), (["all"], ["read", "write"]), (["read", "more"], ["more", "read"])]
)
def test_scopes_are_required_and_offered(scopes: list[str], listed: list[str]) -> None:
    found = resource_of(RESOURCE, verifier_of("jwt:https://login.example.com", None, None, None), ["read"], scopes)
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
        resource_of(resource, verifier_of(auth, None, None, None))


@pytest.mark.parametrize(
    ("resource", "auth"), [("https://MCP.example.com/mcp", "jwt:https://a.test"), (RESOURCE, "jwt:http://a.test")]
)
def test_a_url_that_cannot_be_used_is_an_error(resource: str, auth: str) -> None:
    with pytest.raises(ValueError, match="https://"):
        resource_of(resource, verifier_of(auth, None, None, None))


# An OAuth proxy.


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIO_MCP_KEYS", "A" * 43)
    (tmp_path / "secret").write_text("the-secret\n")
    return tmp_path / "secret"


@pytest.mark.parametrize(
    ("text", "provider"), [("github", GITHUB), ("google", GOOGLE), ("entra:contoso.com", ENTRA("contoso.com"))]
)
def test_a_proxy_is_made_for_each_provider(text: str, provider: OAuthProvider, secret: Path) -> None:
    assert provider_of(text) == provider
    found = resource_of(RESOURCE, verifier_of(None, text, "client", secret), ["read"])
    assert found is not None
    assert "/mcp/oauth/authorize" in [route.path for route in found.routes(["/mcp"], list)]


@pytest.mark.parametrize("content", [b"s3cret\r\n", b"\xef\xbb\xbfs3cret"])
def test_a_secret_is_what_an_editor_has_saved_without_the_marks_around_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)
    assert secret_in(tmp_path / "secret") == "s3cret"


@pytest.mark.parametrize("content", [None, b"", b" \n", b"s3cret\xff"])
def test_a_file_without_a_secret_is_an_error_that_names_the_file_and_shows_nothing_of_it(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "secret-file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CommandError) as caught:
        secret_in(path)
    assert str(path) in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("text", ["gitlab", "entra", "entra:", "GitHub", "github:x", ""])
def test_another_provider_is_an_error_that_names_those_that_there_are(text: str) -> None:
    with pytest.raises(CommandError, match="github, google or entra:TENANT"):
        provider_of(text)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((None, "github", None, Path("secret")), "--client-id"),
        ((None, "github", "client", None), "--client-secret-file"),
        ((None, None, "client", None), "--oauth-proxy"),
        ((None, None, None, Path("secret")), "--oauth-proxy"),
        (("jwt:https://login.example.com", "github", "client", Path("secret")), "one of them"),
    ],
)
def test_options_of_a_proxy_that_lack_another_are_an_error(options: Any, text: str) -> None:
    with pytest.raises(CommandError, match=text):
        verifier_of(*options)


def test_without_keys_the_command_says_how_to_make_one(
    secret: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TRIO_MCP_KEYS")
    words = ["--oauth-proxy", "github", "--client-id", "client", "--client-secret-file", str(secret)]
    assert main(["serve", "app.py", "--resource", RESOURCE, *words]) == Status.USAGE
    assert unnamed(capsys.readouterr().err, "TRIO_MCP_KEYS", "token_bytes") == []


APPLICATION = """
from trio_mcp import HttpOptions, Server
from trio_mcp.auth import static
from trio_mcp_transports.http import asgi_app

known = static({"a-long-random-token": "alice"})
server = Server("diary"%s)
app = asgi_app(%s, authenticate=known)
"""


@pytest.mark.parametrize("served", ["server", '{"/diary": server}'])
@pytest.mark.parametrize("path", ["", "/diary="])
def test_a_server_is_not_served_open_whose_callers_an_application_of_its_file_authenticates(
    path: str, served: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "diary.py"
    file.write_text(APPLICATION % ("", served))
    assert main(["serve", f"{path}{file}"]) == Status.UNREACHABLE
    assert unnamed(capsys.readouterr().err, file, "app authenticates", "HttpOptions", "diary:app") == []


def test_an_application_keeps_no_server_from_being_served_that_authenticates_its_callers_itself(tmp_path: Path) -> None:
    file = tmp_path / "diary.py"
    file.write_text(APPLICATION % (", http=HttpOptions(authenticate=known)", "server"))
    assert load_python(PythonTarget(file), served_open=True).identity.name == "diary"
