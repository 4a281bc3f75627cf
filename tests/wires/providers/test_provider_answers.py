"""Both providers over real sockets: answers, streams, failures of every kind, and what becomes of the connection."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from email.utils import formatdate
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio
from model_api import EVENTS, Reply, model_api, says, streams, unused_url
from provider_apis import APIS, CALLED, KEY, OPENAI, REQUEST, WITH_TOOL, Api, both

from trio_mcp.errors import ProviderError, ProviderErrorKind
from trio_mcp.types import ModelHint, ModelPreferences, SamplingMessage, TextContent, ToolUseContent


@pytest.fixture(autouse=True)
def no_key_in_any_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Every logger shows everything, and none the key."""
    with caplog.at_level(logging.DEBUG):
        yield
    assert KEY not in "".join(map(caplog.handler.format, caplog.get_records("call")))


async def failure_of(
    api: Api, *replies: Reply, on_text: Callable[[str], None] | None = None, **options: Any
) -> ProviderError:
    """The error of a request that gets these replies, all of which it uses; with `on_text`, it is for a stream."""
    async with model_api(*replies) as server:
        provider = api.provider(server.url, **options)
        with pytest.raises(ProviderError) as caught:
            await (provider.sample(REQUEST) if on_text is None else provider.stream(WITH_TOOL, on_text))
        assert len(server.asked) == len(replies)
        if replies[-1].then == "hang":
            await server.left.wait()
    error = caught.value
    for text in (str(error), repr(error), error.public_text):
        assert KEY not in text
    # Its causes would be shown in tracebacks.
    assert (error.__cause__, error.__context__) == (None, None)
    return error


# answers


@both
async def test_an_answer_has_its_text_usage_and_stop_reason(api: Api) -> None:
    async with model_api(says(api.answer)) as server:
        provider = api.provider(server.url)
        result = await provider.sample(REQUEST)
    assert result.content == [TextContent(text="Hello.")]
    assert (result.role, result.model, result.stop_reason) == ("assistant", "model-1", "endTurn")
    assert result.meta == {"usage": {"inputTokens": 12, "outputTokens": 3}}
    assert hasattr(provider, "stream")
    [asked] = server.asked
    assert (asked.path, asked.body["model"]) == (api.path, "model-1")
    assert KEY in asked.headers["authorization"]
    assert "stream" not in asked.body


@both
async def test_a_tool_call_is_a_block(api: Api) -> None:
    async with model_api(says(api.call)) as server:
        result = await api.provider(server.url).sample(WITH_TOOL)
    assert (result.content, result.stop_reason) == (CALLED, "toolUse")
    assert len(server.asked[0].body["tools"]) == 1


@both
async def test_a_stream_shows_its_text_and_ends_as_the_same_result(api: Api) -> None:
    shown: list[str] = []
    async with model_api(streams(api.events)) as server:
        result = await api.provider(server.url).stream(WITH_TOOL, shown.append)
    assert shown == ["Look", "ing."]
    assert (result.content, result.stop_reason, result.model) == (CALLED, "toolUse", "model-1")
    assert result.meta == {"usage": {"inputTokens": 12, "outputTokens": 3}}
    assert server.asked[0].body["stream"] is True
    assert server.asked[0].body.get("stream_options") == ({"include_usage": True} if api is OPENAI else None)


@both
async def test_events_may_be_cut_anywhere(api: Api) -> None:
    raw = b"".join(api.events)
    async with model_api(streams([raw[at : at + 7] for at in range(0, len(raw), 7)])) as server:
        result = await api.provider(server.url).stream(WITH_TOOL, print)
    assert result.content == CALLED


@both
async def test_a_server_without_keys_gets_none(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, KEY)
    async with model_api(says(api.answer), says({"data": [{"id": "a"}]}), says(api.answer)) as server:
        await api.provider(server.url, api_key=None).sample(REQUEST)
        await api.provider(server.url, None, api_key=None).sample(REQUEST)
    for asked in server.asked:
        assert {"authorization", "x-api-key"}.isdisjoint(asked.headers)
        assert KEY not in str(asked.headers)


@both
async def test_without_a_model_it_takes_the_first_that_the_api_lists_and_remembers_it(api: Api) -> None:
    async with model_api(
        says({"data": [{"id": "first"}, {"id": "second"}]}), says(api.answer), says(api.answer)
    ) as server:
        provider = api.provider(server.url, None)
        await provider.sample(REQUEST)
        await provider.sample(REQUEST)
    asked = [(each.method, each.path) for each in server.asked]
    assert asked == [("GET", "/v1/models"), ("POST", api.path), ("POST", api.path)]
    assert [asked.body["model"] for asked in server.asked[1:]] == ["first", "first"]


@both
async def test_an_api_that_lists_no_models_is_malformed(api: Api) -> None:
    error = await failure_of(api, says({"data": []}), model=None)
    assert error.kind is ProviderErrorKind.MALFORMED


@both
async def test_a_hint_chooses_among_the_known_models(api: Api) -> None:
    preferences = ModelPreferences(hints=[ModelHint(name="nope"), ModelHint(), ModelHint(name="LARGE")])
    hinted = REQUEST.model_copy(update={"model_preferences": preferences})
    async with model_api(says(api.answer), says(api.answer)) as server:
        provider = api.provider(server.url, "small-1", models=["medium-1", "large-1"])
        await provider.sample(hinted)
        await provider.sample(REQUEST)
    assert [asked.body["model"] for asked in server.asked] == ["large-1", "small-1"]


async def test_a_server_that_is_not_openais_gets_the_old_name_of_the_limit() -> None:
    async with model_api(says(OPENAI.answer)) as server:
        await OPENAI.provider(server.url).sample(REQUEST)
    assert server.asked[0].body["max_tokens"] == 9
    assert "max_completion_tokens" not in server.asked[0].body


# failures


@both
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, ProviderErrorKind.MALFORMED),
        (400, ProviderErrorKind.REJECTED),
        (401, ProviderErrorKind.AUTHENTICATION),
        (403, ProviderErrorKind.AUTHENTICATION),
        (404, ProviderErrorKind.REJECTED),
        (408, ProviderErrorKind.UNAVAILABLE),
        (413, ProviderErrorKind.REJECTED),
        (425, ProviderErrorKind.UNAVAILABLE),
        (429, ProviderErrorKind.RATE_LIMITED),
        (500, ProviderErrorKind.UNAVAILABLE),
        (529, ProviderErrorKind.UNAVAILABLE),
    ],
)
async def test_a_status_has_a_kind(api: Api, status: int, kind: ProviderErrorKind) -> None:
    said = {"error": {"type": "x", "message": f"Incorrect key {KEY}, or something else"}}
    error = await failure_of(api, says(said, status, location="http://127.0.0.1:9/"), max_retries=0)
    assert (error.kind, error.status, error.retry_after) == (kind, status, None)
    assert ("something else" in str(error)) is (kind is not ProviderErrorKind.AUTHENTICATION)
    assert "something else" not in error.public_text


@both
async def test_a_failure_is_logged_with_what_the_api_said(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    await failure_of(api, says({"error": {"message": f"no more {KEY}"}}, 429), max_retries=0)
    ours = [record for record in caplog.records if record.name == "trio_mcp.providers"]
    assert [record.levelname for record in ours] == ["WARNING"]
    assert "no more [key]" in ours[0].getMessage()


@both
async def test_a_failure_that_may_pass_is_repeated_and_one_that_cannot_is_not(api: Api) -> None:
    async with model_api(says({}, 500), says({}, 429, retry_after="0"), says(api.answer)) as server:
        result = await api.provider(server.url).sample(REQUEST)
    assert result.content == [TextContent(text="Hello.")]
    assert len(server.asked) == 3
    assert (await failure_of(api, says({}, 400))).status == 400


@both
@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("2.5", 2.5, 2.5),
        ("7", 7, 7),
        (formatdate(4102444800, usegmt=True), 1e8, 4102444800),
        (formatdate(0, usegmt=True), 0, 0),
        ("-3", 0, 0),
    ],
)
async def test_retry_after_is_read_as_seconds_or_as_a_date(api: Api, header: str, least: float, most: float) -> None:
    error = await failure_of(api, says({}, 429, retry_after=header), max_retries=0)
    assert error.retry_after is not None
    assert least <= error.retry_after <= most


@both
@pytest.mark.parametrize("header", ["soon", "nan", "inf", "1e999", ""])
async def test_a_retry_after_that_makes_no_sense_is_ignored(api: Api, header: str) -> None:
    assert (await failure_of(api, says({}, 429, retry_after=header), max_retries=0)).retry_after is None


@both
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"nothing", b'{"a": NaN}', b"\xff", b'{"choices": [], "content": 1, "model": "m"}', b"[" * 200],
)
async def test_an_answer_that_is_none_is_malformed(api: Api, body: bytes) -> None:
    error = await failure_of(api, Reply([body]))
    assert error.kind is ProviderErrorKind.MALFORMED


@both
async def test_a_body_that_breaks_off_is_malformed(api: Api) -> None:
    raw = json.dumps(api.answer).encode()
    for reply in (Reply([raw], then="break"), Reply([raw[:20]], then="break")):
        assert (await failure_of(api, reply)).kind is ProviderErrorKind.MALFORMED


@pytest.mark.parametrize(
    ("api", "number"),
    [pytest.param(api, number, id=f"{api.name}-{number}") for api in APIS for number in range(len(api.events))],
)
@pytest.mark.parametrize("inside", [False, True], ids=["between", "inside"])
@pytest.mark.parametrize("then", ["break", "end"])
async def test_a_stream_that_breaks_off_between_or_inside_events_is_malformed_and_not_repeated(
    api: Api, number: int, inside: bool, then: Any
) -> None:
    shown: list[str] = []
    sent = [*api.events[:number], *([api.events[number][:-5]] if inside else [])]
    error = await failure_of(api, streams(sent, then), on_text=shown.append)
    assert error.kind is ProviderErrorKind.MALFORMED
    assert "Looking.".startswith("".join(shown))


@both
@pytest.mark.parametrize(
    "event",
    [
        b"data: {\n\n",
        b"data: []\n\n",
        b"data: \xff\n\n",
        b'data: {"type": "content_block_stop", "type": "x"}\n\n',
        b'data: {"type": "content_block_delta", "choices": [{"delta": {"tool_calls": [{"index": "x"}]}}]}\n\n',
        b'data: {"type": "content_block_delta", "index": 7, "choices": [{"delta": {"tool_calls": [{"index": []}]}}]}\n\n',
    ],
)
async def test_a_malformed_event_ends_the_stream(api: Api, event: bytes) -> None:
    error = await failure_of(api, streams([*api.events[:2], event], then="hang"), on_text=print)
    assert error.kind is ProviderErrorKind.MALFORMED


@both
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "rate_limit_error", "message": "slowly"}, ProviderErrorKind.RATE_LIMITED),
        ({"type": "overloaded_error", "message": "busy"}, ProviderErrorKind.UNAVAILABLE),
        ({"type": "invalid_request_error", "message": "no"}, ProviderErrorKind.REJECTED),
        ({"code": 429, "message": "slowly"}, ProviderErrorKind.RATE_LIMITED),
        ({"code": "invalid_api_key", "message": f"{KEY} is not yours"}, ProviderErrorKind.AUTHENTICATION),
        ({"code": 401, "message": f"{KEY} is not yours"}, ProviderErrorKind.AUTHENTICATION),
        ("broken", ProviderErrorKind.UNAVAILABLE),
    ],
)
async def test_an_error_in_a_stream_has_a_kind(api: Api, error: Any, kind: ProviderErrorKind) -> None:
    event = f"event: error\ndata: {json.dumps({'type': 'error', 'error': error})}\n\n".encode()
    failure = await failure_of(api, streams([api.events[0], event]), on_text=print, max_retries=0)
    assert failure.kind is kind
    # An API may show a part of the key, which cannot be recognised: no text that mentions a key is repeated.
    assert "not yours" not in str(failure)


@both
async def test_a_stream_is_repeated_until_its_first_text(api: Api) -> None:
    busy = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}\n\n'
    first_text = next(number for number, event in enumerate(api.events) if b"Look" in event)
    replies = [says({}, 500), streams([api.events[0], busy]), streams([*api.events[: first_text + 1], busy])]
    shown: list[str] = []
    error = await failure_of(api, *replies, on_text=shown.append, max_retries=9)
    assert (error.kind, shown) == (ProviderErrorKind.UNAVAILABLE, ["Look"])


@both
async def test_an_error_of_on_text_ends_the_request_and_reaches_the_caller(api: Api) -> None:
    def fail(text: str) -> None:
        raise ZeroDivisionError

    async with model_api(streams(api.events[:8], then="hang")) as server:
        with pytest.raises(ZeroDivisionError):
            await api.provider(server.url).stream(REQUEST, fail)
        await server.left.wait()


@both
async def test_without_a_server_it_is_unreachable_after_the_retries(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    url = await unused_url()
    with trio.fail_after(20), pytest.raises(ProviderError) as caught:
        await api.provider(url, max_retries=1).sample(REQUEST)
    assert (caught.value.kind, caught.value.status) == (ProviderErrorKind.UNREACHABLE, None)
    assert len([record for record in caplog.records if record.name == "trio_mcp.providers"]) == 2


@both
async def test_a_request_that_the_api_cannot_take_is_not_sent(api: Api) -> None:
    call = SamplingMessage(role="user", content=ToolUseContent(id="c", name="n", input={}))
    async with model_api() as server:
        with pytest.raises(ProviderError, match=r"messages\[0\]\.content\[0\]") as caught:
            await api.provider(server.url).sample(REQUEST.model_copy(update={"messages": [call]}))
        assert (caught.value.kind, server.connections) == (ProviderErrorKind.REJECTED, 0)


# bounds


@both
@pytest.mark.parametrize("headers", [{}, EVENTS], ids=["body", "stream"])
async def test_an_answer_over_the_limit_is_malformed(
    api: Api, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_mcp.providers.connection.MAX_BODY", 3000)
    monkeypatch.setattr("trio_mcp.providers.connection.MAX_STREAM", 3000)
    endless = Reply([b": " + b" " * 998] * 4, headers=headers, then="hang")
    error = await failure_of(api, endless, on_text=print if headers else None)
    assert (error.kind, "3000" in str(error)) == (ProviderErrorKind.MALFORMED, True)


@both
async def test_a_stream_of_too_much_text_is_malformed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.providers.streams.MAX_TEXT", 5)
    error = await failure_of(api, streams(api.events, then="hang"), on_text=print)
    assert error.kind is ProviderErrorKind.MALFORMED


@both
async def test_of_an_error_without_end_only_the_beginning_is_read(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.providers.connection.MAX_ERROR_BODY", 100)
    error = await failure_of(api, Reply([b"x" * 60] * 3, status=400, then="hang"))
    assert (error.kind, str(error).count("x")) == (ProviderErrorKind.REJECTED, 100)


@both
@pytest.mark.parametrize("charset", ["punycode", "undefined", "idna", "utf-16"])
async def test_the_encoding_that_an_error_names_decides_nothing(api: Api, charset: str) -> None:
    reply = Reply([b"no such model"], status=400, headers={"content-type": f"text/plain; charset={charset}"})
    error = await failure_of(api, reply)
    assert error.kind is ProviderErrorKind.REJECTED
    assert "no such model" in str(error)


@both
async def test_a_compressed_answer_is_malformed(api: Api) -> None:
    error = await failure_of(api, Reply([b"x"], headers={"content-encoding": "gzip"}))
    assert error.kind is ProviderErrorKind.MALFORMED


# time


@both
@pytest.mark.parametrize("streamed", [False, True], ids=["sample", "stream"])
async def test_a_cancel_closes_the_connection(api: Api, streamed: bool) -> None:
    async with model_api(Reply([b": ping\n\n"], headers=EVENTS if streamed else {}, then="hang")) as server:
        provider = api.provider(server.url)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(*((provider.stream, REQUEST, print) if streamed else (provider.sample, REQUEST)))
            await server.hangs.wait()
            nursery.cancel_scope.cancel()
        await server.left.wait()


# connections


@both
@pytest.mark.parametrize("is_opened", [True, False], ids=["in a block", "without"])
async def test_in_a_block_connections_are_kept_and_without_each_request_closes_its_own(
    api: Api, is_opened: bool
) -> None:
    async with model_api(says(api.answer), streams(api.events), says(api.answer)) as server:
        provider = api.provider(server.url)
        async with provider if is_opened else nullcontext():
            await provider.sample(REQUEST)
            await provider.stream(REQUEST, print)
            await provider.sample(REQUEST)
            if is_opened:
                assert (server.connections, server.open_connections) == (1, 1)
        while server.open_connections:
            await trio.lowlevel.checkpoint()
        assert server.connections == (1 if is_opened else 3)
        await provider.aclose()


@both
async def test_it_can_be_used_after_its_block_but_not_opened_twice(api: Api) -> None:
    async with model_api(says(api.answer)) as server:
        async with api.provider(server.url) as provider:
            with pytest.raises(RuntimeError):
                await provider.__aenter__()
        await provider.sample(REQUEST)


@both
def test_a_provider_outlives_an_event_loop(api: Api) -> None:
    made: list[Any] = []

    async def ask(port: int) -> int:
        async with model_api(says(api.answer), port=port) as server:
            if not made:
                made.append(api.provider(server.url))
            await made[0].sample(REQUEST)
            assert server.connections == 1
            return urlsplit(server.url).port or 0

    port = trio.run(ask, 0)
    trio.run(ask, port)


@both
async def test_many_requests_run_at_once(api: Api) -> None:
    async with model_api(*[says(api.answer)] * 30) as server:
        async with api.provider(server.url) as provider, trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(provider.sample, REQUEST)
        assert len(server.asked) == 30
