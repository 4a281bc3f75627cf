"""The rest of a body and its end: a cancel of the caller is never swallowed, and clean-up is bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import httpx2
import pytest
import trio
from naming import naming
from trio.testing import MockClock

from trio_mcp.errors import ProviderError, ProviderErrorKind
from trio_mcp.providers import AnthropicProvider, OpenAIProvider
from trio_mcp.providers.api import RETRY_BACKOFF
from trio_mcp.providers.connection import CLOSE_SECONDS, Connection, read_rest
from trio_mcp.providers.endpoint import find_endpoint
from trio_mcp.providers.openai import VENDOR
from trio_mcp.types import CreateMessageRequestParams, SamplingMessage, TextContent

KEY = "sk-very-secret-0123456789"
AT_ONCE = replace(RETRY_BACKOFF, first=0)
LOCAL = "http://127.0.0.1:9/v1"
REQUEST = CreateMessageRequestParams(
    messages=[SamplingMessage(role="user", content=TextContent(text="hi"))], max_tokens=9
)
both = pytest.mark.parametrize("provider", [AnthropicProvider, OpenAIProvider])


class Source:
    """Pieces of a body, and what became of it: `ended` when nothing of it is left open."""

    def __init__(self, pieces: int, *, every: float = 0, then: Exception | None = None) -> None:
        self._pieces = pieces
        self._every = every
        self._then = then
        self.sent = 0
        self.ended = False

    async def __aiter__(self) -> Any:
        try:
            while self.sent < self._pieces:
                await trio.sleep(self._every)
                self.sent += 1
                yield b"x"
            if self._then is not None:
                raise self._then
        finally:
            self.ended = True


async def test_the_rest_is_read_to_its_end() -> None:
    source = Source(5)
    async with aclosing(aiter(source)) as pieces:
        await anext(pieces)
        await read_rest(pieces, 1)
        assert (source.sent, source.ended) == (5, True)


@pytest.mark.parametrize("error", [httpx2.ReadError("gone"), httpx2.StreamClosed()])
async def test_an_error_of_the_rest_does_not_matter(error: Exception) -> None:
    source = Source(2, then=error)
    async with aclosing(aiter(source)) as pieces:
        await read_rest(pieces, 1)
        assert source.ended


async def test_an_error_of_the_program_is_not_swallowed() -> None:
    async with aclosing(aiter(Source(2, then=ZeroDivisionError()))) as pieces:
        with pytest.raises(ZeroDivisionError):
            await read_rest(pieces, 1)


@pytest.mark.parametrize("every", [0.1, 1000], ids=["it goes on", "it hangs"])
async def test_a_rest_without_end_is_given_up_in_time(every: float, autojump_clock: MockClock) -> None:
    source = Source(10**9, every=every)
    start = trio.current_time()
    async with aclosing(aiter(source)) as pieces:
        await read_rest(pieces, 0.5)
        assert source.ended
    assert trio.current_time() - start == pytest.approx(0.5)


async def test_nothing_is_waited_for_where_the_rest_is_not_wanted(autojump_clock: MockClock) -> None:
    source = Source(10**9, every=1000)
    start = trio.current_time()
    async with aclosing(aiter(source)) as pieces:
        await read_rest(pieces, 0)
        assert source.ended
    assert trio.current_time() == start


@pytest.mark.parametrize(("seconds", "cancel_after"), [(0, 0), (0.5, 0), (0.5, 0.25), (60, 0.25)])
async def test_a_cancel_of_the_caller_is_not_swallowed(
    seconds: float, cancel_after: float, autojump_clock: MockClock
) -> None:
    source = Source(10**9, every=1000)
    went_on = False
    with trio.CancelScope(deadline=trio.current_time() + cancel_after) as scope:
        if not cancel_after:
            scope.cancel()
        async with aclosing(aiter(source)) as pieces:
            try:
                raise ValueError("an error in the block")
            except ValueError:
                # As in a `finally`, where an error is on its way already.
                await read_rest(pieces, seconds)
                went_on = True
    assert scope.cancelled_caught
    assert not went_on
    assert source.ended


class Stuck:
    """A client whose connections do not close."""

    errors = ()

    async def aclose(self) -> None:
        await trio.sleep_forever()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_closing_is_bounded_and_goes_on_under_a_cancel(cancelled: bool, autojump_clock: MockClock) -> None:
    connection = Connection(find_endpoint(VENDOR, LOCAL, None), lambda _endpoint, _http: Stuck(), keep=True)  # type: ignore[arg-type,return-value]
    start = trio.current_time()
    with trio.CancelScope() as scope:
        if cancelled:
            scope.cancel()
        await connection.aclose()
    assert trio.current_time() - start == pytest.approx(CLOSE_SECONDS)


@both
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx2.ConnectTimeout(""), ProviderErrorKind.UNREACHABLE),
        (httpx2.ConnectError(f"no {KEY}"), ProviderErrorKind.UNREACHABLE),
        (httpx2.ReadError("reset"), ProviderErrorKind.UNREACHABLE),
        (httpx2.WriteError("broken"), ProviderErrorKind.UNREACHABLE),
    ],
)
async def test_an_error_before_the_response_is_unreachable(
    provider: Any, error: Exception, kind: ProviderErrorKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: object, request: httpx2.Request) -> AsyncIterator[bytes]:
        raise error

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", fail)
    with pytest.raises(ProviderError) as caught:
        await provider("m", base_url=LOCAL, api_key=KEY, max_retries=1, backoff=AT_ONCE).sample(REQUEST)
    assert (caught.value.kind, caught.value.__cause__, caught.value.__context__) == (kind, None, None)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("provider", "variable", "header"),
    [
        (OpenAIProvider, "OPENAI_ORG_ID", "openai-organization"),
        (AnthropicProvider, "ANTHROPIC_CUSTOM_HEADERS", "x-extra"),
    ],
)
async def test_a_header_of_the_environment_that_cannot_be_sent_is_not_shown(
    provider: Any, variable: str, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: object, request: httpx2.Request) -> AsyncIterator[bytes]:
        raise httpx2.LocalProtocolError(f"Illegal header value {request.headers[header].encode()!r}")

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", refuse)
    for vendor in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{vendor}_BASE_URL", LOCAL)
        monkeypatch.setenv(f"{vendor}_API_KEY", "k")
    monkeypatch.setenv(variable, f"X-Extra: {KEY}\x01")
    with pytest.raises(ProviderError, match=naming(header)) as caught:
        await provider("m", max_retries=0).sample(REQUEST)
    assert KEY not in str(caught.value)
