"""The Autobahn test suite against both ends of our WebSockets: `make autobahn`, or `python tests/transports/autobahn.py`.

The suite is written in Python 2, and runs under CPython 2.7 only: $PYTHON27 or `python2.7` says where that is. It is installed
with its own pip into a separate folder, once. Two agents echo what it sends:

- `server`: an application on our connection, which reads its WebSocket itself (`MessageSocket` in `asgi/responses.py`),
- `client`: trio-websocket as our client opens it.

Cases 1 to 7, 9.1.1, 9.2.1 and 10: the rest are compression, which neither end speaks, and sizes over our limits. A case fails
when what was echoed, or how the connection was closed, breaks RFC 6455. The table at the end is that of docs/websocket.md. The
suite's reports are in build/autobahn.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from trio_mcp_transports.asgi.requests import Request
from trio_mcp_transports.asgi.responses import Binary, HttpApp, MessageSocket, Response, Upgrade
from trio_mcp_transports.hypercorn.config import guarded_config
from trio_mcp_transports.hypercorn.frames import OUTGOING
from trio_mcp_transports.hypercorn.serve import serve_asgi
from trio_mcp_transports.hypercorn.websocket import WebSocketExchange
from trio_mcp_transports.websocket.handshake import Address, open_socket, open_wire

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".venv" / "autobahn"
REPORTS = ROOT / "build" / "autobahn"
SUITE = "autobahntestsuite==0.8.2"
CASES = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.1.1", "9.2.1", "10.*"]
SECONDS = 900.0
MAX_MESSAGE = 16 * 1024 * 1024
PORT = 9001
"""Of the suite's server."""

MISSING = """\
The Autobahn suite needs CPython 2.7, and none was found. Put `python2.7` on PATH, or set PYTHON27 to one
(for example `pyenv install 2.7.18`, then PYTHON27=~/.pyenv/versions/2.7.18/bin/python). Nothing was run."""

STARTER = """\
import site, sys
site.addsitedir({folder!r})
from autobahntestsuite.wstest import run
run()
"""


def python27() -> str | None:
    """The interpreter that the suite runs on."""
    installed = sorted(Path.home().glob(".pyenv/versions/2.7.*/bin/python"))
    for candidate in (os.environ.get("PYTHON27"), shutil.which("python2.7"), *map(str, installed)):
        if candidate and subprocess.run([candidate, "-m", "pip", "--version"], capture_output=True).returncode == 0:
            return candidate
    return None


def install(python: str) -> Path:
    """The script that starts the suite, which is beside it."""
    starter = INSTALLED / "start.py"
    if not starter.exists():
        INSTALLED.mkdir(parents=True, exist_ok=True)
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "-q", "--target", str(INSTALLED), SUITE]
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
        starter.write_text(STARTER.format(folder=str(INSTALLED)))
    return starter


# the agents


class Echo(HttpApp):
    """Sends back what it is sent."""

    async def respond(self, request: Request) -> Response:
        return Upgrade(None, self._serve, lambda: None)

    async def _serve(self, socket: MessageSocket) -> None:
        socket.open(MAX_MESSAGE, lambda: None)
        with suppress(OSError):
            while messages := await socket.receive_many():
                for message in messages:
                    if isinstance(message, Binary):
                        # MCP has no binary messages, so that there is no other way to send one.
                        assert isinstance(socket, WebSocketExchange)
                        await socket._say(OUTGOING.send_data(message.data))  # noqa: SLF001
                    elif not socket.send_nowait(message):
                        await socket.send_many([message])

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:
        await serve_lifespan(receive, send)


async def serve_lifespan(receive: Any, send: Any) -> None:
    for step in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{step}.complete"})


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[WebSocketConnection]:
    """A connection as our client opens it, which ends as our client's does: with the stream, when the library closes it."""
    address = Address.of(url)
    async with await open_wire(address, None) as wire, trio.open_nursery() as nursery:
        socket = await open_socket(nursery, wire, address, {}, MAX_MESSAGE, lambda _why: None, subprotocol=None)
        wire.allowance = math.inf
        try:
            yield socket
        finally:
            await trio.aclose_forcefully(wire)


async def echo_as_client(url: str) -> None:
    """Connect, and send back what comes until the connection ends."""
    async with connected(url) as socket:
        with suppress(ConnectionClosed):
            while True:
                await socket.send_message(await socket.get_message())


async def ask(url: str) -> str | bytes:
    """The one message that a server sends to each client that connects."""
    async with connected(url) as socket:
        return await socket.get_message()


# the two runs


async def test_servers(command: list[str], folder: Path) -> None:
    """The suite is the client."""
    async with trio.open_nursery() as nursery:
        config = guarded_config(max_websocket_message=MAX_MESSAGE)
        (address,) = await nursery.start(partial(serve_asgi, Echo(), port=0, signals=False, config=config))
        servers = [{"agent": "server", "url": f"ws{address.partition(' ')[0].removeprefix('http')}"}]
        await suite(command, folder, "fuzzingclient", servers=servers)
        nursery.cancel_scope.cancel()


async def test_client(command: list[str], folder: Path) -> None:
    """The suite is the server."""
    url = f"ws://127.0.0.1:{PORT}"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(suite, command, folder, "fuzzingserver", url=url))
        count = int(await when_there(partial(ask, f"{url}/getCaseCount")))
        for case in range(1, count + 1):
            with trio.move_on_after(60):
                await echo_as_client(f"{url}/runCase?case={case}&agent=client")
        await echo_as_client(f"{url}/updateReports?agent=client")
        nursery.cancel_scope.cancel()


async def suite(command: list[str], folder: Path, mode: str, **spec: Any) -> None:
    path = folder / "spec.json"
    path.write_text(
        json.dumps({**spec, "outdir": str(folder), "cases": CASES, "exclude-cases": [], "exclude-agent-cases": {}})
    )
    with (folder / "log.txt").open("wb") as log:
        await trio.run_process([*command, "-m", mode, "-s", str(path)], stdout=log, stderr=log, cwd=folder)


async def when_there(ask: Any) -> Any:
    """The suite's server takes a moment to start, and says nothing when it has."""
    while True:
        try:
            return await ask()
        except OSError:
            await trio.sleep(0.2)


def summarized(folders: list[Path]) -> int:
    """Print what came of it; the number of cases that failed."""
    failed = 0
    for folder in folders:
        for agent, cases in sorted(json.loads((folder / "index.json").read_text()).items()):
            worst = {case: max(grade(each["behavior"]), grade(each["behaviorClose"])) for case, each in cases.items()}
            counts = Counter(worst.values())
            failed += counts[2]
            print(f"| `{agent}` | {len(cases)} | {counts[0]} | {counts[1]} | {counts[2]} |")
            for case, result in sorted(cases.items()):
                if worst[case]:
                    print(f"    {case}: {result['behavior']}, {result['behaviorClose']}")
    return failed


def grade(word: str) -> int:
    """0: as it should be; 1: allowed, but later than it could be; 2: wrong."""
    return 0 if word in ("OK", "INFORMATIONAL") else 1 if word == "NON-STRICT" else 2


async def main(python: str) -> int:
    command = [python, "-W", "ignore", str(install(python))]
    folders = [REPORTS / "servers", REPORTS / "clients"]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    with trio.fail_after(SECONDS):
        await test_servers(command, folders[0])
        await test_client(command, folders[1])
    return summarized(folders)


if __name__ == "__main__":
    found = python27()
    sys.exit(MISSING if found is None else min(trio.run(main, found), 1))
