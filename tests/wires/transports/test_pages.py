"""Pages of other origins call our server, on each host that it runs on: what Chromium does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from serving import MODULE, SOON, child, free_port, served

from trio_mcp import HttpRequest, HttpResponse, Server

HERE = Path(__file__).parent
LIMIT = 60.0
TOKEN = "a-token-of-a-page-that-is-long-enough"
COMMANDS = {
    "ours": ["trio_mcp", "serve", "page_app.py:server", "--port"],
    "hypercorn": ["hypercorn", "-k", "trio", "page_app:app", "-b"],
    "uvicorn": ["uvicorn", "page_app:app", "--port"],
}
"""What serves it, as the arguments of `python -m`; the port follows."""


@asynccontextmanager
async def protected(kind: str, origin: str) -> AsyncIterator[str]:
    """Serve `page_app.py` in a process, for pages of this origin; yields the URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    own = {"PAGE_ORIGIN": origin, "PAGE_RESOURCE": url, "PAGE_TOKEN": TOKEN}
    command = (*COMMANDS[kind], f"127.0.0.1:{port}" if kind == "hypercorn" else str(port))
    async with child(MODULE, *command, strict=False, limit=LIMIT, cwd=HERE, variables=own) as server:
        # Each of them logs where it listens, once it does.
        assert str(port) in await server.announced()
        yield url


# Chromium

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-proxy-server")
FLAGS += ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage")
HOSTS = "--host-resolver-rules=MAP *.example 127.0.0.1"


@pytest.fixture(scope="session")
def chromium() -> str:
    """The command of Chromium."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("Chromium is not installed: no page of a real browser has called a server")
    return program


@asynccontextmanager
async def page_host() -> AsyncIterator[tuple[int, trio.MemoryReceiveChannel[Any]]]:
    """Serve the page; yields the port, and what pages have seen."""
    send, seen = trio.open_memory_channel[Any](9)
    host = Server("host")

    @host.route("/page", public=True)
    async def page(_request: HttpRequest) -> HttpResponse:
        return HttpResponse((HERE / "browser_page.html").read_text(), content_type="text/html")

    @host.route("/seen", methods=["POST"], public=True)
    async def note(request: HttpRequest) -> HttpResponse:
        send.send_nowait(request.json())
        return HttpResponse()

    async with served(host) as url:
        yield httpx2.URL(url).port or 0, seen


async def visit(chromium: str, profile: Path, url: str, seen: trio.MemoryReceiveChannel[Any]) -> Any:
    """Open a page, and return what it has seen."""
    command = [chromium, *FLAGS, HOSTS, f"--user-data-dir={profile}", url]
    # It starts child processes, which have to end too.
    process = await trio.lowlevel.open_process(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return await seen.receive()
    finally:
        process.terminate()
        with trio.CancelScope(shield=True), trio.move_on_after(SOON):
            await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", COMMANDS)
async def test_a_page_of_another_origin_reads_the_challenge_calls_and_answers(
    kind: str, chromium: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with page_host() as (port, seen), protected(kind, f"http://app.example:{port}") as url:
            found = await visit(chromium, tmp_path, f"http://app.example:{port}/page?url={url}&token={TOKEN}", seen)
    assert found["challenge"]["status"] == 401
    assert found["challenge"]["authorization_servers"] == ["https://login.example.com"]
    assert found["legacy"] == {"kind": "text/event-stream", "text": "ordered 3", "ended": 204}
    assert found["modern"] == "ordered 4"
    assert (found["route"], found["cookies"]) == ("7", "TypeError")


async def test_a_page_of_a_foreign_origin_reads_nothing(chromium: str, tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with page_host() as (port, seen), protected("ours", f"http://app.example:{port}") as url:
            found = await visit(chromium, tmp_path, f"http://evil.example:{port}/page?url={url}&token={TOKEN}", seen)
    assert found == dict.fromkeys(["challenge", "legacy", "modern", "route", "cookies"], "TypeError")
