"""`trio-mcp backfill` as a host starts it, with an API of a model on this machine. Every wait is bounded."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest
import trio
from command import COMMAND, NO_KEYS, ROOT, SAMPLING, SECONDS, announced, started
from model_api import Asked, ModelApi, Reply, anthropic_answer, model_api, openai_answer, says
from sampling_server import server
from serving import served

from trio_mcp import Client
from trio_mcp.errors import PeerError

OPENAI, KEY = "OPENAI_API_KEY", "sk-hunter2"


def answered(asked: Asked) -> Reply:
    """Answer as the API of OpenAI or Anthropic does."""
    if asked.method == "GET":
        return says({"object": "list", "data": [{"id": "first-model", "object": "model"}]})
    answer = {"/v1/chat/completions": openai_answer, "/v1/messages": anthropic_answer}[asked.path]
    return says({**answer(), "model": asked.body["model"]})


class Api:
    """The parts of the APIs of OpenAI and Anthropic that are used.

    Attributes:
        url: its address.
    """

    def __init__(self, api: ModelApi) -> None:
        self.url = f"{api.url}/v1"
        self._api = api

    @property
    def models(self) -> list[str]:
        """The models that were asked."""
        return [asked.body["model"] for asked in self._api.asked if asked.method == "POST"]

    @property
    def keys(self) -> set[str | None]:
        return {asked.headers.get("authorization") for asked in self._api.asked}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with model_api(always=answered) as found:
        yield Api(found)


def backfill(*arguments: str) -> list[str]:
    return [*COMMAND, "backfill", *arguments]


@asynccontextmanager
async def host_of(command: list[str], mode: str, **environment: str) -> AsyncIterator[Client]:
    with trio.fail_after(SECONDS):
        async with Client.connect(command, mode=mode, env={**NO_KEYS, **environment}) as client:
            yield client


async def test_a_host_without_a_model_gets_the_answer_of_the_api(api: Api, mode: str) -> None:
    async with host_of(backfill("--provider", api.url, "--", *SAMPLING), mode, OPENAI_API_KEY="sk-1") as client:
        assert (await client.call_tool("think")).text == "Hello."
    assert api.models == ["first-model"]
    assert api.keys == {"Bearer sk-1"}


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
@pytest.mark.parametrize("named", [True, False], ids=["by its name", "by its key"])
async def test_the_api_of_a_vendor_is_asked(api: Api, vendor: str, named: bool) -> None:
    environment = {f"{vendor.upper()}_API_KEY": "sk-2", f"{vendor.upper()}_BASE_URL": api.url}
    command = backfill(*(["--provider", vendor] if named else []), "--", *SAMPLING)
    async with host_of(command, "modern", **environment) as client:
        assert (await client.call_tool("think")).text == "Hello."
    assert api.models == ["first-model"]
    assert api.keys == {"Bearer sk-2"}


async def test_the_model_can_be_named(api: Api) -> None:
    command = backfill("--provider", api.url, "--model", "named-model", "--", *SAMPLING)
    async with host_of(command, "legacy") as client:
        await client.call_tool("think")
    assert api.models == ["named-model"]


async def test_a_key_that_the_api_rejects_is_reported_without_its_message(mode: str) -> None:
    async with model_api(always=says({"error": {"message": "words of the API"}}, 401)) as api:
        async with host_of(backfill("--provider", f"{api.url}/v1", "--model", "m", "--", *SAMPLING), mode) as client:
            try:
                outcome = (await client.call_tool("think")).text
            except PeerError as error:
                outcome = str(error)
    assert "key" in outcome
    assert "words of the API" not in outcome


async def test_a_host_that_leaves_ends_the_proxy_and_its_server(api: Api, mode: str) -> None:
    async with host_of(backfill("--provider", api.url, "--", *SAMPLING), mode) as client:
        server = int((await client.call_tool("pid")).text)
        os.kill(server, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_hosts_over_http_each_get_a_server(api: Api, mode: str, scheme: str) -> None:
    command = ["backfill", "--provider", api.url, "--http", "--port", "0", "--", *SAMPLING]
    with started(*command) as process:
        url = announced(process).replace("http", scheme, 1)
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
    async with served(server) as http_url:
        url = http_url.replace("http", scheme, 1)
        async with host_of(backfill("--provider", api.url, url), mode) as client:
            assert (await client.call_tool("think")).text == "Hello."


async def test_host_and_server_may_both_be_at_urls(api: Api, mode: str) -> None:
    """A server over HTTP, a proxy in front of it over HTTP, and another one in front of that."""
    with ExitStack() as processes:
        where = ["--", *SAMPLING]
        for _ in range(2):
            command = ["backfill", "--provider", api.url, "--http", "--port", "0", *where]
            where = [announced(processes.enter_context(started(*command)))]
        with trio.fail_after(SECONDS):
            async with Client.connect(where[0], mode=mode) as client:
                assert (await client.call_tool("think")).text == "Hello."
    assert len(api.models) == 1


# Opens a terminal, which becomes that of the session, then becomes the command.
AT_TERMINAL = (
    "import os, sys; os.open(sys.argv[1], os.O_RDWR); os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)


async def test_a_form_is_shown_at_the_terminal_for_a_host_that_shows_none(api: Api, mode: str) -> None:
    ours, theirs = pty.openpty()
    command = backfill("--provider", api.url, "--elicit", "terminal", "--", *SAMPLING)
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
