"""`trio-mcp backfill` as a host starts it, with an API of a model on this machine. Every wait is bounded."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trio
from command import COMMAND, ENVIRONMENT, ROOT, SECONDS, started
from model_api import anthropic_answer, openai_answer

from trio_mcp import Client
from trio_mcp.errors import PeerError

SERVER = [sys.executable, str(Path(__file__).with_name("sampling_server.py"))]
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
OPENAI, KEY = "OPENAI_API_KEY", "sk-hunter2"
NO_KEYS = {name: value for name, value in ENVIRONMENT.items() if name not in KEYS}


class Api(ThreadingHTTPServer):
    """The parts of the APIs of OpenAI and Anthropic that are used; they answer `status` and keep what was asked."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, object]] = []
        self.keys: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": "first-model", "object": "model"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(asked)
        answer = {"/v1/chat/completions": openai_answer, "/v1/messages": anthropic_answer}[self.path]
        self.answer({**answer(), "model": asked["model"]})

    def answer(self, body: object) -> None:
        self.server.keys.add(self.headers["authorization"])
        data = json.dumps(body if self.server.status == 200 else {"error": {"message": "words of the API"}}).encode()
        self.send_response(self.server.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as api:
        thread = threading.Thread(target=api.serve_forever, daemon=True)
        thread.start()
        yield api
        api.shutdown()
        thread.join(SECONDS)


def backfill(*arguments: str) -> list[str]:
    return [*COMMAND, "backfill", *arguments]


@asynccontextmanager
async def host_of(command: list[str], mode: str, **environment: str) -> AsyncIterator[Client]:
    with trio.fail_after(SECONDS):
        async with Client.connect(command, mode=mode, env={**NO_KEYS, **environment}) as client:
            yield client


async def test_a_host_without_a_model_gets_the_answer_of_the_api(api: Api, mode: str) -> None:
    async with host_of(backfill("--provider", api.url, "--", *SERVER), mode, OPENAI_API_KEY="sk-1") as client:
        assert (await client.call_tool("think")).text == "Hello."
    assert [asked["model"] for asked in api.asked] == ["first-model"]
    assert api.keys == {"Bearer sk-1"}


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
@pytest.mark.parametrize("named", [True, False], ids=["by its name", "by its key"])
async def test_the_api_of_a_vendor_is_asked(api: Api, vendor: str, named: bool) -> None:
    environment = {f"{vendor.upper()}_API_KEY": "sk-2", f"{vendor.upper()}_BASE_URL": api.url}
    command = backfill(*(["--provider", vendor] if named else []), "--", *SERVER)
    async with host_of(command, "modern", **environment) as client:
        assert (await client.call_tool("think")).text == "Hello."
    assert [asked["model"] for asked in api.asked] == ["first-model"]
    assert api.keys == {"Bearer sk-2"}


async def test_the_model_can_be_named(api: Api) -> None:
    command = backfill("--provider", api.url, "--model", "named-model", "--", *SERVER)
    async with host_of(command, "legacy") as client:
        await client.call_tool("think")
    assert [asked["model"] for asked in api.asked] == ["named-model"]


async def test_a_key_that_the_api_rejects_is_reported_without_its_message(api: Api, mode: str) -> None:
    api.status = 401
    async with host_of(backfill("--provider", api.url, "--model", "m", "--", *SERVER), mode) as client:
        try:
            outcome = (await client.call_tool("think")).text
        except PeerError as error:
            outcome = str(error)
    assert "key" in outcome
    assert "words of the API" not in outcome


async def test_a_host_that_leaves_ends_the_proxy_and_its_server(api: Api, mode: str) -> None:
    async with host_of(backfill("--provider", api.url, "--", *SERVER), mode) as client:
        server = int((await client.call_tool("pid")).text)
        os.kill(server, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_hosts_over_http_each_get_a_server(api: Api, mode: str, scheme: str) -> None:
    command = ["backfill", "--provider", api.url, "--http", "--port", "0", "--", *SERVER]
    with started(*command) as process:
        assert process.stderr is not None
        announced = next(line for line in process.stderr if " serves MCP at " in line)
        url = announced.rpartition(" ")[2].strip().replace("http", scheme, 1)
        with trio.fail_after(SECONDS):
            async with Client.connect(url, mode=mode) as one, Client.connect(url, mode=mode) as other:
                assert (await one.call_tool("think")).text == (await other.call_tool("think")).text == "Hello."
                # A session and a WebSocket have their own server; modern requests over HTTP belong to none, and share one.
                pids = {(await client.call_tool("pid")).text for client in (one, other)}
                assert len(pids) == (1 if (mode, scheme) == ("modern", "http") else 2)
        process.terminate()
        assert process.wait(SECONDS) == 0


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_the_server_behind_it_may_be_a_url(api: Api, mode: str, scheme: str) -> None:
    from trio_mcp_transports.http import serve_http

    sys.path.insert(0, str(Path(__file__).parent))
    from sampling_server import server

    async with trio.open_nursery() as nursery:
        urls = await nursery.start(
            lambda **options: serve_http(server, port=0, announce=False, signals=False, **options)
        )
        url = urls[0].replace("http", scheme, 1)
        async with host_of(backfill("--provider", api.url, url), mode) as client:
            assert (await client.call_tool("think")).text == "Hello."
        nursery.cancel_scope.cancel()


async def test_host_and_server_may_both_be_at_urls(api: Api, mode: str) -> None:
    """A server over HTTP, a proxy in front of it over HTTP, and another one in front of that."""
    with ExitStack() as processes:
        where = ["--", *SERVER]
        for _ in range(2):
            command = ["backfill", "--provider", api.url, "--http", "--port", "0", *where]
            process = processes.enter_context(started(*command))
            assert process.stderr is not None
            where = [next(line for line in process.stderr if " serves MCP at " in line).rpartition(" ")[2].strip()]
        with trio.fail_after(SECONDS):
            async with Client.connect(where[0], mode=mode) as client:
                assert (await client.call_tool("think")).text == "Hello."
    assert len(api.asked) == 1


# Opens a terminal, which becomes that of the session, then becomes the command.
AT_TERMINAL = (
    "import os, sys; os.open(sys.argv[1], os.O_RDWR); os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)


async def test_a_form_is_shown_at_the_terminal_for_a_host_that_shows_none(api: Api, mode: str) -> None:
    ours, theirs = pty.openpty()
    command = backfill("--provider", api.url, "--elicit", "terminal", "--", *SERVER)
    at_terminal = [sys.executable, "-c", AT_TERMINAL, os.ttyname(theirs), *command[1:]]

    async def enter() -> None:
        screen = b""
        while b"Who are you?" not in screen or not screen.rstrip().endswith(b":"):
            await trio.lowlevel.wait_readable(ours)
            screen += os.read(ours, 4096)
        os.write(ours, b"Ada\n")

    async with host_of(at_terminal, mode) as client, trio.open_nursery() as nursery:
        nursery.start_soon(enter)
        assert (await client.call_tool("meet")).text == "Ada"
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize(
    ("status", "environment", "arguments", "names"),
    [
        (2, {}, ["--", "server"], ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"]),
        (2, {}, ["--provider", "openai", "--", "server"], ["OPENAI_API_KEY"]),
        (2, {}, ["--provider", "anthropic", "--", "server"], ["ANTHROPIC_API_KEY"]),
        (2, {}, ["--provider", "mine", "--", "server"], ["mine", "anthropic", "openai"]),
        (2, {OPENAI: KEY}, [], ["--"]),
        (2, {OPENAI: KEY}, ["--"], ["--"]),
        (3, {OPENAI: KEY}, ["server.py"], ["server.py"]),
        (2, {OPENAI: KEY}, ["http://127.0.0.1:1/mcp", "--", "server"], ["--"]),
        (2, {OPENAI: KEY}, ["--header", "a=b", "--", "server"], ["--header"]),
        (2, {OPENAI: KEY}, ["--elicit", "terminal", "--", "server"], ["terminal"]),
        (3, {OPENAI: KEY}, ["--", "no_such_command"], ["no_such_command"]),
        (2, {OPENAI: KEY}, ["--http", "--host", "0.0.0.0", "--", "server"], ["--allowed-host"]),
        (2, {OPENAI: KEY}, ["http://user:hunter2@127.0.0.1:1/mcp"], ["--header"]),
        (2, {OPENAI: KEY}, ["http://"], ["host"]),
        (
            2,
            {OPENAI: KEY},
            ["--provider", "http://user:hunter2@127.0.0.1:1/v1", "--", "server"],
            ["--provider", "OPENAI_API_KEY"],
        ),
        (2, {OPENAI: KEY}, ["--provider", "http://user:hunter2@[::1/v1", "--", "server"], ["--provider"]),
        (2, {OPENAI: KEY}, ["--provider", "", "--", "server"], ["--provider", "openai", "anthropic"]),
        (2, {OPENAI: KEY}, ["--model", "", "--", "server"], ["--model"]),
        (2, {OPENAI: KEY}, ["--port", "9000", "--", "server"], ["--port", "--http"]),
        (2, {OPENAI: KEY}, ["--max-sessions", "9", "--", "server"], ["--max-sessions", "--http"]),
        (2, {OPENAI: KEY}, ["--http", "--max-sessions", "0", "--", "server"], ["--max-sessions"]),
        (2, {OPENAI: KEY}, ["--allowed-host", "a", "--", "server"], ["--allowed-host", "--http"]),
        (3, {OPENAI: KEY}, ["--", "--", "server"], ["--"]),
    ],
)
def test_a_mistake_is_named_in_one_line_without_secrets(
    status: int, environment: dict[str, str], arguments: list[str], names: list[str]
) -> None:
    done = subprocess.run(
        backfill(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=ROOT,
        env={**NO_KEYS, **environment},
        start_new_session=True,
    )
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert [name for name in names if name not in last] == []


def test_a_server_that_ends_first_ends_the_proxy_with_the_reason() -> None:
    command = backfill("--provider", "http://127.0.0.1:1/v1", "--", sys.executable, "-c", "raise SystemExit(5)")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=NO_KEYS, cwd=ROOT
    ) as process:
        # Its stdin stays open: the proxy ends by itself.
        assert process.wait(SECONDS) == 3
        assert process.stderr is not None
        assert "status 5" in process.stderr.read().decode()
