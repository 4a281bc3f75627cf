"""Legacy sessions at two processes on one real store, one of which ends and comes back behind a proxy."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import trio
from orders import BOUND, message, two_processes
from peer import hello
from serving import HttpProcess, free_port
from store_servers import missing
from waiting import until

from trio_mcp import Client, accept

NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    upstream mcp {{
        server 127.0.0.1:{first};
        server 127.0.0.1:{second} backup;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://mcp; proxy_http_version 1.1; proxy_buffering off; proxy_set_header Host $host; }}
    }}
}}
"""


@asynccontextmanager
async def proxy(folder: Path, first: HttpProcess, second: HttpProcess) -> AsyncIterator[str]:
    """Run nginx before two processes, of which the second serves while the first does not; return its URL."""
    if shutil.which("nginx") is None:
        missing("nginx", "nginx")
    number = free_port()
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, first=first.port, second=second.port, port=number))
    front = await trio.lowlevel.open_process(["nginx", "-p", str(folder), "-c", str(config)])
    try:
        while True:
            try:
                await (await trio.open_tcp_stream("127.0.0.1", number)).aclose()
            except OSError:
                await trio.sleep(0.05)
            else:
                break
        yield f"http://127.0.0.1:{number}/mcp"
    finally:
        front.terminate()
        await front.wait()


class Session:
    """A legacy session whose requests may go to any process."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._headers = {"accept": "application/json, text/event-stream"}

    async def open(self, url: str) -> None:
        opened = await self._post(url, message("initialize", hello(), 1))
        self._headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        await self._post(url, message("notifications/initialized", {}))

    async def list(self, url: str) -> int:
        """Ask for the tools until that is not refused as busy; return the status."""
        while (status := (await self._post(url, message("tools/list", {}, 2))).status_code) == 503:
            pass
        return status

    async def _post(self, url: str, body: object) -> httpx2.Response:
        return await self._http.post(url, json=body, headers=self._headers, timeout=BOUND)


async def test_a_session_goes_where_its_requests_come_to_when_a_process_ends_and_is_back(
    store: str, tmp_path: Path
) -> None:
    with trio.fail_after(BOUND):
        async with two_processes(store, tmp_path) as (first, second), httpx2.AsyncClient() as http:
            session = Session(http)
            await session.open(first.url)
            for each in (second, first):
                assert await session.list(each.url) == 200
            await first.kill()
            assert await session.list(second.url) == 200
            await first.start()
            for each in (first, second):
                assert await session.list(each.url) == 200


async def test_a_call_whose_process_ends_behind_a_proxy_goes_on_in_another_one(tmp_path: Path, mode: str) -> None:
    ledger = tmp_path / "ledger"
    with trio.fail_after(BOUND):
        store = str(tmp_path / "state.db")
        async with two_processes(store, tmp_path) as (first, second), proxy(tmp_path, first, second) as url:
            client = Client.connect(url, mode=mode, on_elicit=lambda _: accept(value=True), wait_if_busy=8)
            async with trio.open_nursery() as nursery, client:

                async def kill_when_answered() -> None:
                    await until(lambda: ledger.exists() and "answered" in ledger.read_text())
                    await first.kill()
                    (tmp_path / "go").touch()

                nursery.start_soon(kill_when_answered)
                assert (await client.call_tool("order", {"name": "tea"})).text == "tea accept"
    assert ledger.read_text().count("charge") == ledger.read_text().count("ship") == 1
