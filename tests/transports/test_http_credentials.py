"""Requests over HTTP with the credentials of a client, without sockets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import trio

from trio_mcp.auth import AuthorizationError
from trio_mcp.errors import AuthorizationErrorKind
from trio_mcp_transports.authorizing import MAX_REJECTION, end_retries, log_in_if_asked
from trio_mcp_transports.connecting import open_credentials
from trio_mcp_transports.httpx import ClientLimits, open_http

URL = "http://127.0.0.1:1/mcp"


class Counting:
    """Credentials that are accepted at the third attempt."""

    def __init__(self, *, failure: AuthorizationError | None = None, is_ready: bool = False) -> None:
        self.sent = 0
        self.failure = failure
        self.is_ready = is_ready

    @asynccontextmanager
    async def open(self, url: str) -> AsyncGenerator[Counting]:
        yield self

    async def ready(self) -> bool:
        return self.is_ready

    def attempts(self, method: str, url: str) -> Counting:
        return self

    async def headers(self) -> Mapping[str, str]:
        self.sent += 1
        return {"authorization": f"Bearer {self.sent}"}

    async def retry(self, status: int, headers: Mapping[str, str]) -> bool:
        if status == 401 and self.failure is not None:
            raise self.failure
        return status == 401


class Server(httpx2.AsyncBaseTransport):
    """Answers 401 until it sees the third token."""

    def __init__(self, body: httpx2.AsyncByteStream | None = None) -> None:
        self.seen: list[str | None] = []
        self.bodies: list[bytes] = []
        self.body = body

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.seen.append(request.headers.get("authorization"))
        self.bodies.append(await request.aread())
        if self.seen[-1] == "Bearer 3":
            return httpx2.Response(200, json={"ok": True})
        return httpx2.Response(401, stream=self.body) if self.body is not None else httpx2.Response(401)


@asynccontextmanager
async def opened(server: Server, auth: Any, headers: Any = None) -> AsyncIterator[httpx2.AsyncClient]:
    async with open_credentials(auth, URL, 1.0) as credentials:
        async with open_http(ClientLimits(), headers, credentials) as http:
            http._transport = server  # noqa: SLF001  what `transport=` of the client sets
            http._mounts = {}  # noqa: SLF001
            yield http


async def test_a_rejected_request_is_sent_again_with_other_credentials_and_the_same_body() -> None:
    server = Server()
    async with opened(server, Counting(), {"x-a": "b"}) as http:
        response = await http.post(URL, content=b"body")
    assert response.status_code == 200
    assert server.seen == ["Bearer 1", "Bearer 2", "Bearer 3"]
    assert server.bodies == [b"body"] * 3


async def test_a_function_of_headers_is_called_before_the_credentials() -> None:
    server = Server()

    async def headers() -> Mapping[str, str]:
        return {"authorization": "Basic x", "x-a": "b"}

    async with opened(server, Counting(), headers) as http:
        response = await http.post(URL)
    assert response.request.headers["x-a"] == "b"
    assert server.seen == ["Bearer 1", "Bearer 2", "Bearer 3"]


class Endless(httpx2.AsyncByteStream):
    """A body without an end."""

    def __init__(self, *, is_slow: bool) -> None:
        self.size = 0
        self.is_slow = is_slow

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.size += 4096
            yield b"x" * 4096
            await trio.sleep(0.3 if self.is_slow else 0)

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("is_slow", [False, True])
async def test_the_body_of_a_rejection_is_not_read_to_its_end(is_slow: bool) -> None:
    body = Endless(is_slow=is_slow)
    server = Server(body)
    began = trio.current_time()
    async with opened(server, Counting()) as http:
        assert (await http.post(URL)).status_code == 200
    assert body.size <= 2 * MAX_REJECTION + 3 * 4096
    assert trio.current_time() - began < 5


async def test_what_the_credentials_raise_is_raised_to_the_sender() -> None:
    failure = AuthorizationError("no", kind=AuthorizationErrorKind.DENIED)
    async with opened(Server(), Counting(failure=failure)) as http:
        with pytest.raises(AuthorizationError) as caught:
            await http.post(URL)
    assert caught.value is failure


async def test_a_client_that_closes_sends_each_request_once() -> None:
    server = Server()
    async with opened(server, Counting()) as http:
        end_retries(http)
        assert (await http.delete(URL)).status_code == 401
    assert server.seen == ["Bearer 1"]


@pytest.mark.parametrize(("is_ready", "requests"), [(False, 3), (True, 0)])
async def test_a_login_takes_place_before_the_first_message_if_one_is_needed(is_ready: bool, requests: int) -> None:
    server, credentials = Server(), Counting(is_ready=is_ready)
    async with opened(server, credentials) as http:
        await log_in_if_asked(http, URL, credentials, 1.0)
    assert len(server.seen) == requests


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_token_or_a_function_that_returns_one_is_sent(is_async: bool) -> None:
    async def asynchronous() -> str:
        return "3"

    for auth in ("3", asynchronous if is_async else lambda: "3"):
        server = Server()
        async with opened(server, auth) as http:
            assert (await http.post(URL)).status_code == 200
        assert server.seen == ["Bearer 3"]


async def raises() -> str:
    raise RuntimeError("canary")


async def never() -> str:
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize(
    "function", [raises, never, lambda: None, lambda: 5, lambda: "", lambda: "canary\nx", lambda: "é"]
)
async def test_a_function_without_a_token_fails_the_request_and_shows_nothing(function: Any) -> None:
    server = Server()
    async with opened(server, function) as http:
        with pytest.raises(httpx2.ConnectError) as caught:
            await http.post(URL)
    assert "auth=" in str(caught.value)
    assert "canary" not in str(caught.value)
    assert server.seen == []


async def test_the_auth_of_httpx2_is_used_as_it_is() -> None:
    server = Server()
    async with opened(server, httpx2.BasicAuth("a", "b")) as http:
        await http.post(URL)
    assert server.seen == ["Basic YTpi"]
