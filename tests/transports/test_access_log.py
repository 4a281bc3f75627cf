"""The access log and the log of calls: who did what, how it ended, and no secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from asgi_peer import JSON_HEADERS, AsgiPeer, legacy_call, modern_call, served

from trio_mcp import Context, HttpOptions, Server, ToolError, configure_logging
from trio_mcp_transports.http import asgi_app

SECRET = "hunter2-canary"


class Log:
    """The lines of JSON that were written."""

    def __init__(self, out: io.StringIO) -> None:
        self._out = out

    @property
    def text(self) -> str:
        return self._out.getvalue()

    def of(self, logger: str) -> list[dict[str, Any]]:
        records = [json.loads(line) for line in self.text.splitlines()]
        return [record for record in records if record["logger"] == logger]

    @property
    def access(self) -> list[dict[str, Any]]:
        return self.of("trio_mcp.access")

    @property
    def calls(self) -> list[dict[str, Any]]:
        return self.of("trio_mcp.calls")


@pytest.fixture
def log(root_logger: logging.Logger) -> Log:
    out = io.StringIO()
    configure_logging("info", "json", stream=out)
    return Log(out)


async def by_token(headers: Mapping[str, str]) -> str | None:
    return "ann" if headers.get("authorization") == f"Bearer {SECRET}" else None


SIGNED = {"authorization": f"Bearer {SECRET}", "cookie": SECRET, "x-api-key": SECRET}


@asynccontextmanager
async def shop(**options: Any) -> AsyncIterator[AsgiPeer]:
    server = Server("shop", http=HttpOptions(authenticate=by_token, access_log=True, **options))

    @server.tool
    async def book(title: str, ctx: Context) -> str:
        logging.getLogger("shop.tools").warning("sold out")
        if title == "wrong":
            raise ToolError(SECRET)
        if title == "broken":
            raise KeyError("broken")
        if title == "late":
            await trio.sleep_forever()
        return title

    async with served(asgi_app(server)) as peer:
        yield peer


async def call(peer: AsgiPeer, title: str, **headers: str) -> Any:
    call = modern_call("book", {"title": title}, headers=SIGNED | headers)
    return await peer.post(*call, query=f"token={SECRET}")


async def test_a_request_is_one_record_with_its_call_and_its_principal(log: Log) -> None:
    async with shop() as peer:
        reply = await call(peer, "emma")
    (record,) = log.access
    assert (record["principal"], record["level"]) == ("ann", "info")
    http = record["http"]
    assert (http["method"], http["path"], http["status"], http["rpc"]) == ("POST", "/mcp", 200, "tools/call")
    assert (http["bytes"], http["complete"]) == (len(reply.body), True)
    assert reply.headers["x-request-id"] == record["request"]


async def test_a_call_is_one_record_with_its_outcome_and_its_request(log: Log) -> None:
    async with shop() as peer:
        for title in ("emma", "wrong", "broken"):
            await call(peer, title)
    assert [record["call"]["outcome"] for record in log.calls] == ["ok", "error", "failed"]
    first = log.calls[0]
    assert (first["call"]["method"], first["call"]["name"], first["principal"]) == ("tools/call", "book", "ann")
    assert first["call"]["seconds"] >= 0
    assert [record["request"] for record in log.calls] == [record["request"] for record in log.access]


async def test_what_a_tool_logs_has_its_request_and_its_call(log: Log) -> None:
    async with shop() as peer:
        await call(peer, "emma")
    (record,) = log.of("shop.tools")
    assert (record["principal"], record["call"]) == ("ann", {"method": "tools/call", "name": "book"})
    assert record["request"] == log.access[0]["request"]


async def test_a_call_whose_client_leaves_is_cancelled_and_its_request_incomplete(log: Log) -> None:
    async with shop() as peer:
        reply = peer.start(*modern_call("book", {"title": "late"}, headers=SIGNED))
        await trio.testing.wait_all_tasks_blocked()
        reply.gone.set()
        await trio.testing.wait_all_tasks_blocked()
    assert [record["call"]["outcome"] for record in log.calls] == ["cancelled"]
    assert [record["http"]["complete"] for record in log.access] == [False]


async def test_a_rejected_request_is_a_record_without_a_principal(log: Log) -> None:
    async with shop() as peer:
        await peer.post(legacy_call("book"), JSON_HEADERS)
        await peer.post(b"{", {**JSON_HEADERS, "host": "evil.example"})
    assert [record["http"]["status"] for record in log.access] == [401, 421]
    assert all("principal" not in record for record in log.access)


async def test_no_secret_is_logged(log: Log) -> None:
    async with shop(trusted_proxies=["unix"]) as peer:
        for title in ("emma", "wrong", "broken"):
            await call(peer, title)
        await peer.start(b"", SIGNED, method="GET", path="/sse", query=f"session_id={SECRET}").end()
    assert log.access
    assert SECRET not in log.text


async def test_what_a_peer_wrote_is_made_printable(log: Log) -> None:
    async with shop() as peer:
        await peer.post(b"", SIGNED | {"host": "localhost"}, path="/\x1b[2J\u202e\nfake")
        await peer.post({"jsonrpc": "2.0", "id": 1, "method": "\x1b[2J"}, {**JSON_HEADERS, **SIGNED})
    assert "\x1b" not in log.text
    assert all("\x1b" not in record["message"] and "\n" not in record["message"] for record in log.access)
    assert len(log.access) == 2


@pytest.mark.parametrize(("proxies", "kept"), [(["unix"], True), ([], False)])
async def test_the_id_of_a_request_is_taken_from_a_trusted_proxy_only(log: Log, proxies: list[str], kept: bool) -> None:
    async with shop(trusted_proxies=proxies) as peer:
        reply = await call(peer, "emma", **{"x-request-id": "edge-7"})
        await call(peer, "emma", **{"x-request-id": "a b\x1b"})
    ids = [record["request"] for record in log.access]
    assert (ids[0] == "edge-7") is kept
    assert reply.headers["x-request-id"] == ids[0]
    assert ids[1] not in ("edge-7", "a b\x1b")


async def test_probes_are_not_logged(log: Log) -> None:
    async with shop() as peer:
        await peer.start(b"", {}, method="GET", path="/health").end()
    assert log.access == []


async def test_without_an_access_log_a_request_has_no_record_and_no_id(log: Log) -> None:
    server = Server("shop")

    @server.tool
    async def nothing() -> None:
        """Do nothing."""

    async with served(asgi_app(server)) as peer:
        reply = await peer.post(*modern_call("nothing"))
    assert "x-request-id" not in reply.headers
    assert log.access == []
    assert [record["call"]["outcome"] for record in log.calls] == ["ok"]


async def test_an_access_log_below_the_log_level_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with served(asgi_app(Server("shop"), access_log=True)):
            pass
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_the_log_of_calls_costs_nothing_where_it_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """The routes are those of a server without it: no function was put round them."""
    server = Server("shop")
    with caplog.at_level(logging.WARNING, "trio_mcp.calls"):
        async with server.open_service() as service:
            plain = service.routes["tools/call"]
    with caplog.at_level(logging.INFO, "trio_mcp.calls"):
        async with server.open_service() as service:
            logged = service.routes["tools/call"]
    assert getattr(plain, "func", None) is not getattr(logged, "func", plain)
    assert "logged_plan" not in repr(plain)
    assert "logged_plan" in repr(logged)
