"""The consent page of an OAuth proxy in Chromium, which runs no script of it: what a click there does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from serving import SOON, served
from trio_websocket import WebSocketConnection, open_websocket_url

from trio_mcp import HttpRequest, HttpResponse, Server
from trio_mcp.auth.proxy.pages import consent_page
from trio_mcp.auth.proxy.sealed import Client, Ticket

LIMIT = 60.0
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-proxy-server")
FLAGS += ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage")
# Without a window it finds no mouse.
FLAGS += ("--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",)
LOADED = "document.readyState === 'complete' && document.querySelector('form') !== null"
PLACE = """(() => {
  const place = document.querySelector("button.main").getBoundingClientRect();
  return [place.x + place.width / 2, place.y + place.height / 2];
})()"""
WAITED = "document.getAnimations().forEach(each => each.finish())"


@pytest.fixture
def chromium() -> str:
    """The command of Chromium."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("Chromium is not installed: no user has clicked on the page in a real browser")
    return program


class Tab:
    """A page in Chromium.

    Args:
        connection: to its debugger.
    """

    def __init__(self, connection: WebSocketConnection) -> None:
        self._connection = connection
        self._number = 0

    async def ask(self, method: str, **params: Any) -> Any:
        """Return the result of a method of the DevTools protocol."""
        self._number += 1
        await self._connection.send_message(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            answer = json.loads(await self._connection.get_message())
            if answer.get("id") == self._number:
                return answer["result"]

    async def evaluate(self, expression: str) -> Any:
        found = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    async def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            await self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


@asynccontextmanager
async def opened(chromium: str, profile: Path, url: str) -> AsyncIterator[Tab]:
    """Open a page."""
    command = [chromium, *FLAGS, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
    # It starts child processes, which have to end too.
    process = await trio.lowlevel.open_process(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    assert process.stderr is not None
    try:
        said = b""
        while b"DevTools listening on " not in said or not said.endswith(b"\n"):
            said += await process.stderr.receive_some()
        browser = said.partition(b"DevTools listening on ")[2].split()[0].decode()
        async with open_websocket_url(browser) as connection:
            target = await Tab(connection).ask("Target.createTarget", url=url)
            page = browser.partition("/devtools/")[0] + f"/devtools/page/{target['targetId']}"
            async with open_websocket_url(page) as tab:
                yield Tab(tab)
    finally:
        process.terminate()
        with trio.CancelScope(shield=True), trio.move_on_after(SOON):
            await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@asynccontextmanager
async def consenting() -> AsyncIterator[tuple[str, trio.MemoryReceiveChannel[str]]]:
    """Serve the page; yields its URL, and the forms that are posted."""
    send, posted = trio.open_memory_channel[str](9)
    host = Server("host")
    login = Ticket(redirect_uri="https://app.example/", state=None, scopes=(), binding="", browser="")

    @host.route("/authorize", public=True)
    async def page(_request: HttpRequest) -> HttpResponse:
        client, words = Client(name="App", redirect_uris=()), {"resource": "https://mcp.example", "provider": "GitHub"}
        return consent_page(client, "id", login, **words, sealed="ticket", cookie="a=b")

    @host.route("/consent", methods=["POST"], public=True)
    async def consent(request: HttpRequest) -> HttpResponse:
        send.send_nowait(request.text)
        return HttpResponse()

    async with served(host) as url:
        yield url.replace("/mcp", "/authorize"), posted


async def test_the_second_click_of_a_double_click_that_began_in_another_window_agrees_to_nothing(
    chromium: str, tmp_path: Path
) -> None:
    """The window of an attacker covers the page, and closes at the first click."""
    with trio.fail_after(LIMIT):
        async with consenting() as (url, posted), opened(chromium, tmp_path, url) as tab:
            while not await tab.evaluate(LOADED):
                pass
            x, y = await tab.evaluate(PLACE)
            await tab.evaluate("document.addEventListener('click', event => { window.clicked = event.target.tagName })")
            # A second lasts until `WAITED`, however slow this machine is. The page was opened long before.
            await tab.ask("Animation.enable")
            await tab.ask("Animation.setPlaybackRate", playbackRate=0)
            await tab.evaluate(WAITED)
            for _ in range(3):
                await tab.click(x, y)
                assert await tab.evaluate("window.clicked") == "MAIN"
            await tab.evaluate(WAITED)
            await tab.click(x, y)
            assert await posted.receive() == "ticket=ticket&answer=allow"
