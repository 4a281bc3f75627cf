"""A thousand connections that wait for a slow provider, and ten thousand invalid tokens, beside callers who are served."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import httpx2
import pytest
import trio
from asgi_peer import modern_call
from oidc_provider import free_port

from trio_mcp import HttpOptions, Server
from trio_mcp.auth import ProtectedResource, any_of, jwt
from trio_mcp.auth.addresses import Reach
from trio_mcp.auth.replies import Reply
from trio_mcp.testing import TestIssuer

CONNECTIONS = 1_000
LIMIT = 60.0
CALLS = 200
FORGERS = 16
FORGED = 10_000


class SlowProvider:
    """Answers when it is released."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.released = trio.Event()
        self.requests = 0

    async def fetch(self, url: str, reach: Reach, **_: object) -> Reply:
        self.requests += 1
        self.asked.set()
        await self.released.wait()
        return Reply(503)


@asynccontextmanager
async def serving(hook: ProtectedResource, port: int) -> AsyncIterator[str]:
    server = Server("notes", http=HttpOptions(authenticate=hook))

    @server.tool
    async def read() -> str:
        return "a note"

    async with trio.open_nursery() as nursery:
        serve = partial(server.serve, "http", port=port, announce=False, signals=False)
        (url, *_) = await nursery.start(serve)
        yield url
        nursery.cancel_scope.cancel()


async def send(url: str, token: str) -> trio.SocketStream:
    """Send a call on a new connection, and do not wait for the answer."""
    stream = await trio.open_tcp_stream("127.0.0.1", httpx2.URL(url).port or 0)
    body, headers = modern_call("read")
    request = httpx2.Request("POST", url, json=body, headers={**headers, "authorization": f"Bearer {token}"})
    lines = [f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{httpx2.URL(url).port}\r\n".encode()]
    lines += [b"%s: %s\r\n" % (name, value) for name, value in request.headers.raw if name.lower() != b"host"]
    await stream.send_all(b"".join(lines) + b"\r\n" + request.content)
    return stream


async def latencies(url: str, token: str) -> list[float]:
    """Return how long each of some calls took, one after another, in seconds."""
    body, headers = modern_call("read")
    del headers["host"]
    headers["authorization"] = f"Bearer {token}"
    taken = list[float]()
    async with httpx2.AsyncClient(timeout=LIMIT) as http:
        for _ in range(CALLS):
            began = time.perf_counter()
            response = await http.post(url, json=body, headers=headers)
            taken.append(time.perf_counter() - began)
            assert response.status_code == 200
    return taken


async def send_many(url: str, tokens: Sequence[str]) -> set[int]:
    """Send a call with each of these tokens, one after another; return the statuses."""
    body, headers = modern_call("read")
    del headers["host"]
    async with httpx2.AsyncClient(timeout=LIMIT) as http:
        return {
            (await http.post(url, json=body, headers={**headers, "authorization": f"Bearer {token}"})).status_code
            for token in tokens
        }


def show(before: Sequence[float], after: Sequence[float]) -> None:
    """Print what others cost a caller. It is not asserted: other programs use the machine."""
    print(f"median {statistics.median(before) * 1e3:.2f} ms, then {statistics.median(after) * 1e3:.2f} ms")
    print(f"p99 {sorted(before)[-3] * 1e3:.2f} ms, then {sorted(after)[-3] * 1e3:.2f} ms")


async def test_connections_that_wait_for_a_slow_provider_leave_the_others_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow, home, port = SlowProvider(), TestIssuer(), free_port()
    resource = f"http://127.0.0.1:{port}/mcp"
    monkeypatch.setattr("trio_mcp.auth.client.driver.fetch", slow.fetch)
    verifier = any_of(jwt("https://slow.test", realm="slow"), jwt(home.url, keys=home.jwks))
    far = TestIssuer("https://slow.test").token("far", audience=resource)
    good = home.token("alice", audience=resource)
    # On a busy machine the calls beside may take longer than a refresh may.
    monkeypatch.setattr("trio_mcp.auth.server.metadata.REFRESH_SECONDS", LIMIT)
    monkeypatch.setattr("trio_mcp_transports.asgi.authentication.AUTHENTICATION_SECONDS", LIMIT)
    async with serving(ProtectedResource(resource, verifier), port) as url, AsyncExitStack() as stack:
        stack.callback(slow.released.set)
        with trio.fail_after(LIMIT):
            alone = await latencies(url, good)
            streams = [await stack.enter_async_context(await send(url, far)) for _ in range(CONNECTIONS)]
            await slow.asked.wait()
            beside = await latencies(url, good)
            assert slow.requests == 1
            slow.released.set()
            answers = [bytes(await stream.receive_some(64)) for stream in streams]
    assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in answers)
    show(alone, beside)


async def test_ten_thousand_invalid_tokens_are_refused_and_fetch_keys_twice_at_most_while_a_caller_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home, port, statuses = TestIssuer(), free_port(), set[int]()
    resource, fetched = f"http://127.0.0.1:{port}/mcp", list[str]()

    async def fetch(url: str, reach: Reach, **_: object) -> Reply:
        fetched.append(url)
        return Reply(200, {"content-type": "application/json"}, json.dumps(home.jwks).encode())

    monkeypatch.setattr("trio_mcp.auth.server.jwks.fetch", fetch)
    verifier = jwt(home.url, jwks=f"{home.url}/jwks")
    good = home.token("alice", audience=resource)
    # Of another issuer that claims the name of this one: its keys are unknown.
    forged = TestIssuer(home.url).token("mallory", audience=resource)

    head, payload, signature = forged.split(".")
    # Each has another signature, so that none is in a cache.
    invalid = [f"{head}.{payload}.{number:04}{signature[4:]}" for number in range(FORGED // FORGERS)]

    async def beside(tokens: Sequence[str]) -> list[float]:
        """Return how long the calls of a caller take while others send calls with these tokens."""

        async def send_all() -> None:
            statuses.update(await send_many(url, tokens))

        async with trio.open_nursery() as nursery:
            for _ in range(FORGERS):
                nursery.start_soon(send_all)
            return await latencies(url, good)

    async with serving(ProtectedResource(resource, verifier), port) as url:
        with trio.fail_after(LIMIT):
            beside_valid = await beside([good] * len(invalid))
            assert statuses == {200}
            statuses.clear()
            beside_invalid = await beside(invalid)
    assert statuses == {401}
    # One for the first token, and at most one more for a key that was not there.
    assert len(fetched) <= 2
    show(beside_valid, beside_invalid)
