"""`trio-mcp login`, `whoami` and `logout` without a server: what they store, show and refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from naming import unnamed

from trio_mcp.auth import AuthorizationError, Login, OAuth, TokenFiles
from trio_mcp.auth.client.discovery import ServerMetadata
from trio_mcp.auth.client.grants import Tokens
from trio_mcp.auth.client.registration import Registration
from trio_mcp.cli.command import Status
from trio_mcp.cli.program import main
from trio_mcp.cli.targets.logins import login_for, stored_login_for
from trio_mcp.cli.targets.target import UrlTarget
from trio_mcp.compose import OAuthClient
from trio_mcp.errors import AuthorizationErrorKind

URL = "https://mcp.example.com/mcp"
ISSUER = "https://login.example.com"
PAGE = f"{ISSUER}/authorize?state=s"
LOGIN = Login(
    url=URL,
    resource=URL,
    server=ServerMetadata(ISSUER, f"{ISSUER}/token"),
    registration=Registration(ISSUER, "client"),
    tokens=Tokens("canary-access", "bearer", 1_800_000_000.0, "canary-refresh", "read write"),
)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenFiles:
    monkeypatch.setenv("TRIO_MCP_AUTH_DIR", str(tmp_path / "auth"))
    return TokenFiles()


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> list[OAuth]:
    """With which settings the command logs in; each login succeeds."""
    seen: list[OAuth] = []

    async def log_in(settings: OAuth, url: str) -> Login:
        seen.append(settings)
        return replace(LOGIN, url=url)

    monkeypatch.setattr("trio_mcp.cli.commands.login.log_in", log_in)
    return seen


def test_the_options_of_login_are_those_of_the_settings(settings: list[OAuth], tmp_path: Path, capsys: Any) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("canary-secret\n")
    words = ["--client-id", "c", "--client-secret-file", str(secret), "--scope", "a", "--scope", "b"]
    assert main(["login", URL, *words, "--port", "8123", "--issuer", ISSUER, "--json"]) == Status.OK
    (made,) = settings
    assert (made.client_id, made.client_secret, made.scopes) == ("c", "canary-secret", ["a", "b"])
    assert (made.redirect_port, made.issuer) == (8123, ISSUER)
    said = capsys.readouterr()
    assert json.loads(said.out)["issuer"] == ISSUER
    assert "canary" not in said.out + said.err


@pytest.mark.parametrize("variable", [None, "DISPLAY", "WAYLAND_DISPLAY", "BROWSER"])
@pytest.mark.parametrize("words", [[], ["--no-browser"]])
def test_the_browser_is_opened_where_there_is_a_display(
    settings: list[OAuth],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str | None,
    words: list[str],
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv(variable, "x")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    assert main(["login", URL, *words]) == Status.OK
    assert settings[0].browser is not None
    assert trio.run(settings[0].browser, PAGE) is None
    shown = capsys.readouterr().out.splitlines()
    assert (opened, shown) == (([PAGE], []) if variable is not None and not words else ([], [PAGE]))


def test_the_url_of_the_page_is_written_if_no_browser_can_be_opened(
    settings: list[OAuth], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROWSER", "x")
    monkeypatch.setattr("webbrowser.open", lambda _url: False)
    assert main(["login", URL]) == Status.OK
    assert settings[0].browser is not None
    assert trio.run(settings[0].browser, PAGE) is None
    assert capsys.readouterr().out == f"{PAGE}\n"


@pytest.mark.parametrize(
    ("words", "status", "names"),
    [
        (["app.py"], Status.USAGE, ["app.py", "URL"]),
        (["ftp://example.com"], Status.USAGE, ["ftp://example.com"]),
        ([URL, "--client-secret-file", "missing.txt", "--client-id", "c"], Status.UNREACHABLE, ["missing.txt"]),
        ([URL, "--client-secret-file", "empty.txt", "--client-id", "c"], Status.USAGE, ["empty.txt"]),
        ([URL, "--client-secret-file", "secret.txt"], Status.USAGE, ["client_id"]),
        ([URL, "--issuer", "login.example.com"], Status.USAGE, ["login.example.com"]),
        ([URL, "--scope", "a b"], Status.USAGE, ["a b"]),
    ],
)
def test_a_wrong_login_says_what_is_wrong(
    settings: list[OAuth],
    words: list[str],
    status: Status,
    names: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("\n")
    Path("secret.txt").write_text("canary")
    assert main(["login", *words]) == status
    said = capsys.readouterr().err
    assert unnamed(said, *names) == []
    assert "canary" not in said
    assert settings == []


def test_a_server_that_knows_no_logins_may_take_a_token(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def log_in(settings: OAuth, url: str) -> Login:
        raise AuthorizationError("it publishes no metadata", kind=AuthorizationErrorKind.METADATA)

    monkeypatch.setattr("trio_mcp.cli.commands.login.log_in", log_in)
    assert main(["login", URL]) == Status.REFUSED
    assert "--header authorization=" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], [URL], [URL, "--json"], ["--json"]])
def test_whoami_shows_logins_and_no_token(
    files: TokenFiles, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    trio.run(files.write, LOGIN)
    assert main(["whoami", *words]) == Status.OK
    said = capsys.readouterr().out
    assert unnamed(said, URL, ISSUER, "2027-01-15T08:00:00+00:00") == []
    assert "canary" not in said


@pytest.mark.parametrize("command", ["whoami", "logout"])
def test_without_a_login_there_is_nothing_to_show_or_to_end(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, URL]) == Status.REFUSED
    assert URL in capsys.readouterr().err
    assert main(["whoami"]) == Status.OK


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_logout_deletes_the_login_also_if_it_cannot_be_revoked(
    files: TokenFiles, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    # Its authorization server has no endpoint for that.
    trio.run(files.write, LOGIN)
    assert main(["logout", URL, *words]) == Status.OK
    said = capsys.readouterr()
    assert "warning" in said.err
    assert "canary" not in said.err + said.out
    assert not files.has(URL)
    assert not words or json.loads(said.out) == {"url": URL, "revoked": False}


@pytest.mark.parametrize(
    ("target", "headers", "expected"),
    [
        (UrlTarget(URL), {}, True),
        (UrlTarget(URL), {"Authorization": "x"}, False),
        (UrlTarget(URL, {"authorization": "x"}), {}, False),
        (UrlTarget("https://user:word@mcp.example.com/mcp"), {}, False),
        (UrlTarget("wss://mcp.example.com/mcp"), {}, True),
    ],
)
def test_a_command_logs_in_unless_it_has_other_credentials(
    files: TokenFiles, target: UrlTarget, headers: dict[str, str], expected: bool
) -> None:
    found = login_for(target, headers)
    assert (found is not None) == expected
    assert found is None or not found.interactive
    # A proxy sends a login only if there is one.
    assert stored_login_for(target, headers) is None
    trio.run(files.write, LOGIN)
    assert (stored_login_for(target, headers) is not None) == expected


def test_the_client_of_a_hosts_file_logs_in() -> None:
    found = login_for(UrlTarget(URL, {}, OAuthClient(client_id="by-hand")), {})
    assert found is not None
    assert found.client_id == "by-hand"


def test_a_shell_completes_the_servers_with_a_login(files: TokenFiles, capsys: pytest.CaptureFixture[str]) -> None:
    import click

    from trio_mcp.cli.targets.logins import LoginUrl

    trio.run(files.write, LOGIN)
    option = click.Argument(["url"])
    context = click.Context(click.Command("x"))
    for begun, expected in (("", [URL]), ("https://mcp.ex", [URL]), ("https://other", [])):
        assert [item.value for item in LoginUrl().shell_complete(context, option, begun)] == expected
