"""What asks for authentication is not served over a network without, also where it is behind a proxy or mounted."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from asgi_peer import served
from naming import naming

from trio_mcp import Backfill, Client, HttpOptions, RelayServer, Server, proxy
from trio_mcp.errors import ConfigurationError
from trio_mcp.http.open_access import Behind
from trio_mcp.relay.upstream import checked_command
from trio_mcp.server import Mountable
from trio_mcp.session import SharedServer
from trio_mcp_transports.http import asgi_app

URL = "https://mcp.example.com/mcp"


async def authenticate(headers: Mapping[str, str]) -> str | None:
    return headers.get("authorization")


def notes() -> Server:
    server = Server("notes", http=HttpOptions(authenticate=authenticate))

    @server.tool
    async def secret() -> str:
        return "SECRET"

    return server


def mounted(inner: Mountable) -> Server:
    hub = Server("hub")
    hub.mount("far", inner)
    return hub


def hub_in_hub(inner: Mountable) -> Server:
    outer = Server("outer")
    outer.mount("hub", mounted(inner))
    return outer


def with_headers(**headers: str) -> Mountable:
    return proxy(URL, headers={name.replace("_", "-"): value for name, value in headers.items()})


ASKING: dict[str, Callable[[], SharedServer]] = {
    "a server": lambda: proxy(notes()),
    "a server, twice": lambda: proxy(proxy(notes())),
    "a server, mounted": lambda: mounted(proxy(notes())),
    "a server, mounted deep": lambda: hub_in_hub(proxy(notes())),
    "a server that mounts it": lambda: proxy(mounted(proxy(notes()))),
    "the server of a client": lambda: proxy(Client.connect(notes())),
    "an authorization": lambda: with_headers(Authorization="Bearer x"),
    "an authorization in capitals": lambda: with_headers(AUTHORIZATION="Bearer x"),
    "a cookie": lambda: with_headers(cOOkie="session=x"),
    "a key": lambda: with_headers(X_Api_Key="x"),
    "a function": lambda: proxy(URL, headers=dict),
    "an authorization of a WebSocket": lambda: proxy("wss://a.example.com/mcp", headers={"authorization": "Bearer x"}),
    "an authorization of a client": lambda: proxy(Client.connect(URL, headers={"authorization": "Bearer x"})),
    "a user in the URL": lambda: proxy("https://ann:password@mcp.example.com/mcp"),
    "a key in the URL": lambda: proxy(f"{URL}?region=eu&api_key=x"),
    "an authorization, twice": lambda: proxy(with_headers(Authorization="Bearer x")),
    "an authorization, mounted": lambda: mounted(with_headers(Authorization="Bearer x")),
}
OPEN: dict[str, Callable[[], SharedServer]] = {
    "a server": lambda: proxy(Server("open")),
    "a mounted server": lambda: mounted(proxy(Server("open"))),
    "a URL": lambda: proxy(f"{URL}?region=eu"),
    "another header": lambda: with_headers(accept_language="pt", user_agent="x"),
    "a command": lambda: proxy(["uvx", "some-mcp-server"]),
    "a proxy of unknown connections": lambda: RelayServer(never, Backfill()),
}


KEYS = """
    Authorization X-JWT X-Session-Id Session X-Amz-Sig Ticket DPoP X-PIN PRIVATE-TOKEN X-Api-Key X-Goog-Api-Key apikey
    Ocp-Apim-Subscription-Key X-Key X-CSRF Basic
"""
QUERIES = """
    code=x sig=x sid=x jwt=x a=1;token=2 session=x key=x AWSAccessKeyId=x accessToken=x a=1&api%5Fkey=x a=eyJhbGciOi
    a=1&b=Bearer+x
"""
OTHER_KEYS = """
    X-Max-Tokens X-Author X-Keyboard Idempotency-Key X-Monkey X-Tokenizer X-Compass X-Bypass-Cache X-Routing-Key X-Partition-Key
    X-Code
"""
OTHER_QUERIES = "author=me keyword=x max_tokens=5 compass=n sort_key=a country_code=de sortKey=a"
CREDENTIALS: list[tuple[str, dict[str, str]]] = [
    *(("", {name: "x"}) for name in KEYS.split()),
    *(("", {"X-Custom": value}) for value in ("Bearer x", "basic eA==", "eyJhbGciOi")),
    *((f"?{query}", {}) for query in QUERIES.split()),
]
NO_CREDENTIALS: list[tuple[str, dict[str, str]]] = [
    *(("", {name: "x"}) for name in OTHER_KEYS.split()),
    *((f"?{query}", {}) for query in OTHER_QUERIES.split()),
]


@pytest.mark.parametrize(("query", "headers"), CREDENTIALS)
def test_credentials_are_known_by_whole_words_of_their_names_and_by_how_they_begin(
    query: str, headers: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError, match="credentials"):
        asgi_app(proxy(URL + query, headers=headers))


@pytest.mark.parametrize(("query", "headers"), NO_CREDENTIALS)
def test_names_that_only_resemble_those_of_credentials_refuse_nothing(query: str, headers: dict[str, str]) -> None:
    assert asgi_app(proxy(URL + query, headers=headers)).options.authenticate is None


def never() -> Any:
    raise AssertionError("nothing connects")


@pytest.mark.parametrize("make", ASKING.values(), ids=ASKING)
def test_a_proxy_of_what_asks_for_authentication_is_served_with_it_only(make: Callable[[], SharedServer]) -> None:
    with pytest.raises(ConfigurationError, match="authenticate="):
        asgi_app(make())
    with pytest.raises(ConfigurationError, match="authenticate="):
        asgi_app({"/a": Server("a"), "/b": make()})
    assert asgi_app(make(), authenticate=authenticate).options.authenticate is authenticate


@pytest.mark.parametrize("make", OPEN.values(), ids=OPEN)
def test_a_proxy_of_what_is_not_known_to_ask_is_served(make: Callable[[], SharedServer]) -> None:
    assert asgi_app(make()).options.authenticate is None


@pytest.mark.parametrize("transport", ["http", "sse", "websocket"])
async def test_no_wire_of_a_network_serves_it(transport: str) -> None:
    for far in (proxy(notes()), mounted(proxy(notes()))):
        with pytest.raises(ConfigurationError, match=naming("notes")):
            await far.serve(transport, port=0)


async def test_what_is_mounted_after_the_application_was_made_counts() -> None:
    hub = Server("hub")
    app = asgi_app(hub)
    hub.mount("far", proxy(notes()))
    with pytest.raises(ExceptionGroup), trio.fail_after(5):
        async with served(app):
            raise AssertionError("it has started")
    assert isinstance(app.failure, ConfigurationError)


def chain_of(*checks: Callable[[], Awaitable[bool]]) -> RelayServer:
    """Return a proxy in front of one for each check, which finds out whether the server of a command asks."""
    inner = RelayServer(never, Backfill())
    for number, check in enumerate(checks):
        inner = RelayServer(never, Backfill(), behind=Behind(inner, command=f"command {number}", check=check))
    return inner


async def asks_nothing() -> bool:
    await trio.sleep(30)
    return True


async def cannot_say() -> bool:
    await trio.sleep(30)
    return False


async def asks() -> bool:
    raise ConfigurationError("it asks")


async def test_slow_commands_are_asked_at_the_same_time() -> None:
    app = asgi_app(chain_of(asks_nothing, cannot_say, asks_nothing, cannot_say))
    started = trio.current_time()
    async with app.serving():
        assert trio.current_time() - started == 30
        assert app.unknown == ["command 3", "command 1"]


async def test_one_error_says_that_the_servers_of_two_commands_ask_and_the_others_are_not_waited_for() -> None:
    started = trio.current_time()
    with pytest.raises(ConfigurationError, match="it asks"):
        async with asgi_app(chain_of(asks, asks_nothing, asks)).serving():
            raise AssertionError("it is served")
    assert trio.current_time() == started


async def test_it_is_served_in_memory_as_ever() -> None:
    with trio.fail_after(5):
        async with Client.connect(proxy(notes())) as client:
            assert (await client.call_tool("secret")).text == "SECRET"
        async with Client.connect(mounted(proxy(notes()))) as client:
            assert (await client.call_tool("far_secret")).text == "SECRET"


def test_the_error_shows_no_credentials() -> None:
    for far in (
        with_headers(authorization="Bearer t0p"),
        proxy("https://ann:t0p@a.example.com"),
        proxy(f"{URL}?key=t0p"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            asgi_app(far)
        assert "t0p" not in str(caught.value)


SPELLED = {
    "trio-mcp --debug run a.py": "trio-mcp --debug run --check-open a.py",
    "python -mtrio_mcp run a.py": "python -mtrio_mcp run --check-open a.py",
    "python -Im trio_mcp run a.py": "python -Im trio_mcp run --check-open a.py",
    "python -m trio_mcp.cli run a.py": "python -m trio_mcp.cli run --check-open a.py",
    "python -m trio_mcp.__main__ run a.py": "python -m trio_mcp.__main__ run --check-open a.py",
    "python lib/trio_mcp/__main__.py run a.py": "python lib/trio_mcp/__main__.py run --check-open a.py",
    "python /bin/trio-mcp run a.py": "python /bin/trio-mcp run --check-open a.py",
    "uvx --from trio-mcp==1.0 trio-mcp run a.py": "uvx --from trio-mcp==1.0 trio-mcp run --check-open a.py",
    "uvx trio-mcp@latest run a.py": "uvx trio-mcp@latest run --check-open a.py",
    "env -S 'trio-mcp run a.py'": "env trio-mcp run --check-open a.py",
    "env -u X A=b -iS'trio-mcp run' a.py": "env -u X A=b -i trio-mcp run --check-open a.py",
    "env --split-string='trio-mcp run a.py'": "env trio-mcp run --check-open a.py",
    "sh -c 'exec trio-mcp run a.py'": "trio-mcp run --check-open a.py",
    "/bin/bash -lc 'A=b trio-mcp run a.py'": "env A=b trio-mcp run --check-open a.py",
    "trio-mcp backfill -- trio-mcp run a.py": "trio-mcp backfill --check-open -- trio-mcp run a.py",
}


def test_a_file_is_known_by_its_command(tmp_path: Path) -> None:
    """What the files ask for is found out when they are served: see the wires."""
    file = tmp_path / "app.py"
    file.write_text("")
    for target in (
        str(file),
        file,
        f"{file}:server",
        ["python", "-m", "trio_mcp", "run", str(file)],
        ["trio-mcp", "run", "x"],
    ):
        assert proxy(target).behind.check is not None
    for text, checked in SPELLED.items():
        words = checked_command(shlex.split(text))
        assert words is not None
        assert shlex.join(words) == checked
    for command in (
        ["python", str(file)],
        ["uvx", "x", "run"],
        ["trio-mcp"],
        ["python", "-m", "trio_mcp", "call", "x"],
        ["python", "-m", "trio_mcp.server", "run", "x"],
        ["env", "-S", "trio-mcp run 'x"],
        ["env", "-S", "trio-mcp run $FILE"],
        ["env", "other", "-S", "trio-mcp run x"],
        ["sh", "-c", "cd x && trio-mcp run x"],
        ["sh", "trio-mcp"],
    ):
        assert proxy(command).behind.check is None
