"""What a call sends besides its arguments, and what becomes of the response."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

import httpx2
import pytest
import trio
from connected import connected
from naming import naming, unnamed
from recorded_api import Api, Json, operation, param, target
from talk import Talk, talk_to
from trio.testing import MockClock

from trio_mcp import Caller, CallHandler, CallRequest, CallResult, Server, ServiceOptions, ToolError
from trio_mcp.errors import PeerError
from trio_mcp.openapi import Credentials, OpenApiLimits
from trio_mcp.openapi.reading import ENCODINGS, PIECE, decoded
from trio_mcp.session import MemoryBudget
from trio_mcp.types import TextResourceContents

JSON_BODY: Json = {"200": {"description": "", "content": {"application/json": {"schema": {"type": "object"}}}}}


class Body(httpx2.AsyncByteStream):
    """A body in pieces, which notes that it was closed."""

    def __init__(self, *pieces: bytes, hangs: bool = False) -> None:
        self._pieces, self._hangs = pieces, hangs
        self.closed = False
        self.begun = trio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        self.begun.set()
        if self._hangs:
            await trio.sleep_forever()

    async def aclose(self) -> None:
        self.closed = True


def always(status: int = 200, **options: Any) -> Api:
    return Api(lambda request: httpx2.Response(status, **options))


# credentials


async def ask(talk: Talk, principal: str | None) -> None:
    other = type(talk)(talk.service, principal=principal)
    result = await other.result(other.leg("run"))
    assert not result.get("isError"), result


@pytest.mark.parametrize("is_async", [False, True])
async def test_credentials_are_chosen_by_the_caller(is_async: bool) -> None:
    def plain(caller: Caller | None) -> dict[str, str]:
        return {"Authorization": f"Bearer of-{caller.principal}" if caller else "none"}

    async def later(caller: Caller | None) -> dict[str, str]:
        await trio.lowlevel.checkpoint()
        return plain(caller)

    api = Api()
    async with talk_to(api.server(operation(), credentials=later if is_async else plain)) as talk:
        for principal in ("ann", "bob", None):
            await ask(talk, principal)
    assert [each.headers["authorization"] for each in api.requests] == ["Bearer of-ann", "Bearer of-bob", "none"]


async def test_credentials_replace_arguments_and_headers_of_the_client() -> None:
    api = Api()
    api.make_client(headers={"X-Key": "client", "X-Other": "kept"}, cookies={"jar": "1"})
    given = Credentials(headers={"x-key": "own", "Cookie": "a=1"}, query={"key": "own&"}, cookies={"session": "own"})
    parameters = [param("key"), param("x-key", "header"), param("session", "cookie"), param("q")]
    arguments = {"key": "theirs", "x-key": "theirs", "session": "theirs", "q": "1"}
    request = await api.sent(operation(parameters), arguments, credentials=lambda caller: given)
    assert target(request) == "/x?q=1&key=own%26"
    assert (request.headers["x-key"], request.headers["x-other"]) == ("own", "kept")
    assert request.headers["cookie"] == "a=1; session=own"
    assert "own" not in repr(given)


@pytest.mark.parametrize("header", ["Cookie", "cookie", "COOKIE"])
async def test_a_cookie_header_of_the_credentials_replaces_the_cookies_of_an_argument(header: str) -> None:
    parameters = [param("sess", "cookie"), param("more", "cookie")]
    arguments: Json = {"sess": "bob", "more": {"Sess": "bob", "a": "1"}}
    given = {header: "sess=ann;  theme=dark"}
    request = await Api().sent(operation(parameters), arguments, credentials=lambda caller: given)
    assert request.headers.get_list("cookie") == ["sess=ann; theme=dark; a=1"]


async def test_of_cookies_of_one_name_those_of_the_credentials_come_first_and_then_those_of_their_header() -> None:
    api, source = Api(), operation([param("sid", "cookie")])
    api.make_client(headers={"Cookie": "sid=client"})
    both = Credentials(headers={"Cookie": "sid=header"}, cookies={"sid": "cookies"})
    for given, sent in ((both, "cookies"), (Credentials(headers=both.headers), "header"), (Credentials(), "client")):
        request = await api.sent(source, {"sid": "argument"}, credentials=lambda caller, given=given: given)
        assert request.headers["cookie"] == f"sid={sent}"


@pytest.mark.parametrize("name", ["X-Key", "x-key", "X_KEY"])
async def test_a_credential_replaces_an_argument_however_its_name_is_spelled(name: str) -> None:
    api, source = Api(), operation([param(name, "header"), param(name, "query"), param(name, "cookie")])
    (tool,) = api.server(source).tools
    arguments: Json = dict.fromkeys(tool.model.input_schema["properties"], "theirs")
    given = Credentials(headers={"x-key": "own"}, query={"x-key": "own"}, cookies={"x-key": "own"})
    request = await api.sent(source, arguments, credentials=lambda caller: given)
    assert (len(arguments), target(request), request.headers["cookie"]) == (3, "/x?x-key=own", "x-key=own")
    assert [value for key, value in request.headers.items() if key.replace("_", "-") == "x-key"] == ["own"]


async def test_the_headers_of_the_client_are_sent_and_no_argument_replaces_them() -> None:
    api = Api()
    client = api.make_client(headers={"Cookie": "own=1; sess=client", "X-Tenant": "client"}, cookies={"jar": "1"})
    parameters = [param("own", "cookie"), param("x-tenant", "header"), param("user-agent", "header")]
    arguments = {"own": "theirs", "x-tenant": "theirs", "user-agent": "theirs"}
    given = Credentials(cookies={"sess": "ann"})
    request = await api.sent(operation(parameters), arguments, credentials=lambda caller: given)
    assert request.headers.get_list("cookie") == ["own=1; sess=ann"]
    assert (request.headers["x-tenant"], request.headers["user-agent"]) == ("client", "theirs")
    client.headers["cookie"] = "own=2"
    assert (await api.sent(operation())).headers["cookie"] == "own=2"


async def test_a_cookie_that_the_api_sets_is_not_sent_beside_that_of_the_client() -> None:
    api = always(headers={"set-cookie": "session=of-ann; Path=/"})
    api.make_client(headers={"Cookie": "own=1"})
    for _ in range(2):
        assert (await api.sent(operation())).headers["cookie"] == "own=1"


async def test_a_cookie_that_no_header_can_have_does_not_stop_later_calls() -> None:
    api = Api(lambda request: httpx2.Response(200, headers=[(b"set-cookie", "session=é; Path=/".encode())], json={}))
    for _ in range(2):
        assert "cookie" not in (await api.sent(operation())).headers


@pytest.mark.parametrize("body", [b"[" * 100 + b"]" * 100, b"[" * 62 + b"]" * 62, b"9" * 400])
async def test_json_that_no_client_would_read_is_returned_as_text(body: bytes) -> None:
    result = await always(content=body, headers={"content-type": "application/json"}).call(operation())
    assert (result.text, result.structured_content, result.is_error) == (body.decode(), None, False)


def test_a_client_with_a_default_query_is_rejected() -> None:
    api = Api()
    api.make_client(params={"key": "own"})
    with pytest.raises(ValueError, match="credentials="):
        api.server(operation())


async def test_no_part_of_an_argument_has_the_name_of_a_credential() -> None:
    given = Credentials(query={"key": "own"}, cookies={"session": "own"})
    parameters = [param("filter"), param("more", "cookie")]
    arguments: Json = {"filter": {"key": "theirs", "a": "1"}, "more": {"session": "theirs", "b": "2"}}
    request = await Api().sent(operation(parameters), arguments, credentials=lambda caller: given)
    assert (target(request), request.headers["cookie"]) == ("/x?a=1&key=own", "b=2; session=own")


async def test_what_the_api_sets_as_a_cookie_for_one_caller_is_not_sent_for_another() -> None:
    api = always(headers={"set-cookie": "session=of-ann; Path=/"})
    async with talk_to(api.server(operation())) as talk:
        await ask(talk, "ann")
        await ask(talk, "bob")
    assert ["cookie" in each.headers for each in api.requests] == [False, False]


async def test_the_headers_of_the_mcp_request_are_not_passed_on() -> None:
    from trio_mcp.session import Peer

    api = Api()
    async with talk_to(api.server(operation())) as talk:
        talk.peer = Peer("ann", headers={"authorization": "Bearer of-mcp", "x-custom": "mcp"})
        result = await talk.result(talk.leg("run"))
    assert not result.get("isError")
    assert api.requests[0].headers.get("authorization") is None
    assert "x-custom" not in api.requests[0].headers


async def test_credentials_that_are_missing_are_an_error_for_the_model() -> None:
    def none(caller: Caller | None) -> dict[str, str]:
        raise ToolError("Connect your account first.")

    api = Api()
    result = await api.call(operation(), credentials=none)
    assert (result.text, api.requests) == ("Connect your account first.", [])
    wrong = await api.call(operation(), credentials=lambda caller: None)
    assert (wrong.is_error, api.requests) == (True, [])


SECRET = "SECRET-TOKEN"
UNSENDABLE = [f"Bearer {SECRET}\n", f"Bearer {SECRET}\r\nX-Evil: 1", f"{SECRET}\0", f" {SECRET}", f"{SECRET}\t"]


def refuse_headers(request: httpx2.Request) -> httpx2.Response:
    """Fail as the HTTP library does, whose error has the value."""
    for _, value in request.headers.raw:
        if value != value.strip() or any(each < 32 for each in value):
            raise httpx2.LocalProtocolError(f"Illegal header value {value!r}")
    return httpx2.Response(200, json={})


@pytest.mark.parametrize("value", [*UNSENDABLE, f"{SECRET}ä"])
async def test_credentials_that_cannot_be_sent_are_an_error_that_does_not_show_them(
    value: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = await Api(refuse_headers).call(operation(), credentials=lambda caller: {"Authorization": value})
    assert result.is_error
    assert unnamed(caplog.text, "credentials=", "Authorization") == []
    assert SECRET not in result.text + caplog.text


@pytest.mark.parametrize("value", UNSENDABLE)
async def test_a_header_of_the_client_that_cannot_be_sent_is_an_error_that_does_not_show_it(
    value: str, caplog: pytest.LogCaptureFixture
) -> None:
    api = Api(refuse_headers)
    api.make_client(headers={"X-Key": value})
    result = await api.call(operation())
    assert (result.is_error, api.requests) == (True, [])
    assert unnamed(caplog.text, "x-key") == []
    assert SECRET not in result.text + caplog.text


@pytest.mark.parametrize("value", ["Bearer x", ["Bearer x"], {"Authorization": 5}, None])
async def test_credentials_of_another_type_are_an_error_that_names_the_function(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    result = await Api().call(operation(), credentials=lambda caller: value)
    assert result.is_error
    assert unnamed(caplog.text, "credentials=", "TypeError") == []


# redirects


@pytest.mark.parametrize(
    "location",
    [
        "https://evil.example/x",
        "http://api.example/x",
        "https://api.example:8443/x",
        "//evil.example/x",
        "https://api.example@evil.example/x",
        "https://api.example:x/",
    ],
)
@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_redirect_to_another_origin_is_not_followed(status: int, location: str) -> None:
    api = always(status, headers={"location": location})
    result = await api.call(operation(), credentials=lambda caller: {"authorization": "Bearer secret"})
    assert (result.is_error, len(api.requests)) == (True, 1)


@pytest.mark.parametrize(("status", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "GET"), (308, "GET")])
async def test_a_redirect_within_the_origin_is_followed_with_credentials(status: int, method: str) -> None:
    def respond(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/x":
            return httpx2.Response(status, headers={"location": "y?b=1"})
        return httpx2.Response(200, json={"ok": True})

    api = Api(respond)
    result = await api.call(operation(), credentials=lambda caller: {"authorization": "Bearer secret"})
    assert result.data == {"ok": True}
    assert [(each.method, target(each)) for each in api.requests] == [("GET", "/x"), (method, "/y?b=1")]
    assert api.requests[1].headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize(("status", "sent"), [(303, ("GET", b"")), (307, ("POST", b'{"a":1}')), (302, None)])
async def test_a_body_is_sent_again_only_where_the_status_requires_it(
    status: int, sent: tuple[str, bytes] | None
) -> None:
    def respond(request: httpx2.Request) -> httpx2.Response:
        moved = request.url.path == "/v1/x"
        return httpx2.Response(status, headers={"location": "/v1/y"}) if moved else httpx2.Response(200, json={})

    api = Api(respond)
    body = {"content": {"application/json": {}}}
    result = await api.call(operation(method="post", requestBody=body), {"body": {"a": 1}})
    assert result.is_error is (sent is None)
    assert [(each.method, each.content) for each in api.requests[1:]] == ([] if sent is None else [sent])


WRONG_URLS = ["http://[", "https://[::1", "https://[1.2.3.4]/", "https://api.example:0/v1/y", "/" + "y" * 100_000]


@pytest.mark.parametrize("location", WRONG_URLS, ids=[each[:30] for each in WRONG_URLS])
async def test_a_redirect_to_an_invalid_url_is_an_error_for_the_model(
    location: str, caplog: pytest.LogCaptureFixture
) -> None:
    api = always(302, headers={"location": location})
    result = await api.call(operation())
    assert (result.is_error, len(api.requests)) == (True, 1)
    assert bugs_in(caplog) == []


async def test_an_argument_that_makes_too_long_a_url_is_an_error_that_names_the_length(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = Api()
    result = await api.call(operation([param("q")]), {"q": "x" * 100_000})
    assert (result.is_error, len(api.requests)) == (True, 0)
    assert "URL" in result.text
    assert bugs_in(caplog) == []


def bugs_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The records of a tool that failed in a way that its author has not foreseen."""
    return [record.getMessage() for record in caplog.records if record.name == "trio_mcp.call"]


async def test_redirects_in_a_circle_end() -> None:
    api = always(302, headers={"location": "/v1/x"})
    result = await api.call(operation())
    assert (result.is_error, len(api.requests)) == (True, 6)


# limits and failures


async def test_a_response_over_the_limit_is_an_error_and_is_closed() -> None:
    body = Body(b"a" * 60, b"b" * 60)
    api = always(stream=body, headers={"content-type": "text/plain"})
    result = await api.call(operation(), limits=OpenApiLimits(max_response=100))
    assert (result.is_error, "100 bytes" in result.text, body.closed) == (True, True, True)


async def test_a_response_in_too_many_small_pieces_is_an_error_and_is_closed() -> None:
    body = Body(*[b"a"] * 10_001)
    result = await always(stream=body, headers={"content-type": "text/plain"}).call(operation())
    assert (result.is_error, "10000 pieces" in result.text, body.closed) == (True, True, True)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_compressed_response_is_read_within_the_limit(encoding: str) -> None:
    compress = gzip.compress if encoding == "gzip" else zlib.compress

    def respond(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-encoding": encoding, "content-type": "text/plain"}
        return httpx2.Response(200, stream=Body(compress(b"a" * 1_000_000)), headers=headers)

    api = Api(respond)
    assert len((await api.call(operation())).text) == 1_000_000
    assert api.requests[0].headers["accept-encoding"] == "identity"
    bomb = await api.call(operation(), limits=OpenApiLimits(max_response=10_000))
    assert (bomb.is_error, "10000 bytes" in bomb.text) == (True, True)


@pytest.mark.parametrize(("encoding", "data"), [("br", b"x"), ("zstd", b"x"), ("gzip", b"no gzip")])
async def test_what_cannot_be_decompressed_is_an_error(encoding: str, data: bytes) -> None:
    api = Api(lambda request: httpx2.Response(200, stream=Body(data), headers={"content-encoding": encoding}))
    assert (await api.call(operation())).is_error


async def test_an_api_that_does_not_answer_in_time_is_an_error(autojump_clock: MockClock) -> None:
    body = Body(b"{", hangs=True)
    api = always(stream=body)
    begun = trio.current_time()
    result = await api.call(operation(), timeout=20)
    assert (result.is_error, "20 seconds" in result.text, body.closed) == (True, True, True)
    assert trio.current_time() - begun == pytest.approx(20)


@pytest.mark.parametrize(("method", "doubt"), [("get", False), ("post", True), ("delete", True)])
async def test_an_api_that_cannot_be_reached_is_an_error_that_says_what_may_have_happened(
    method: str, doubt: bool
) -> None:
    def respond(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("to 10.0.0.7")

    result = await Api(respond).call(operation(method=method))
    assert result.is_error
    assert ("may have taken effect" in result.text) is doubt
    assert "10.0.0.7" not in result.text


async def test_cancelling_a_call_closes_the_response() -> None:
    body = Body(b"{", hangs=True)
    api = always(stream=body)
    async with connected(api.server(operation())) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "run")
        await body.begun.wait()
        nursery.cancel_scope.cancel()
    assert body.closed


# errors of the API


async def test_an_error_shows_the_beginning_of_its_body() -> None:
    result = await always(500, text="x" * 5000).call(operation(), limits=OpenApiLimits(max_error_body=100))
    assert result.text == "The API answered 500 Internal Server Error.\n" + "x" * 100 + "... [5000 bytes in all]"


async def test_an_error_without_a_text_shows_what_it_is() -> None:
    result = await always(502, content=b"\0" * 10, headers={"content-type": "image/png"}).call(operation())
    assert result.text == "The API answered 502 Bad Gateway.\n[10 bytes of image/png]"
    assert (await always(599).call(operation())).text == "The API answered 599."


async def test_an_error_says_when_to_try_again() -> None:
    result = await always(429, headers={"retry-after": "7"}).call(operation())
    assert result.text == "The API answered 429 Too Many Requests. Try again after 7 seconds."


# successes


async def test_what_does_not_match_the_document_is_an_error_that_shows_it() -> None:
    result = await always(json=[1]).call(operation(responses=JSON_BODY))
    assert result.is_error
    assert result.text.endswith("\n[1]")
    assert (await always(text="hello").call(operation(responses=JSON_BODY))).is_error
    assert (await always(json=[1]).call(operation(responses=JSON_BODY), output_schemas=False)).data == [1]


@pytest.mark.parametrize("value", [5, "text", None, [1, {"a": 2}], {"a": None}, True])
async def test_any_json_is_the_value_of_a_result(value: Any, mode: str) -> None:
    headers = {"content-type": "application/json"}
    api = Api(lambda request: httpx2.Response(200, content=json.dumps(value), headers=headers))
    for schema in (None, {"description": "anything"}):
        content: Json = {"application/json": {} if schema is None else {"schema": schema}}
        server = api.server(operation(responses={"200": {"description": "", "content": content}}))
        async with connected(server, mode=mode) as client:
            assert (await client.call_tool("run")).check().data == value


async def test_json_that_is_none_is_text() -> None:
    result = await always(content=b"{nonsense", headers={"content-type": "application/json"}).call(operation())
    assert (result.is_error, result.text) == (False, "{nonsense")


async def test_a_large_response_is_read_beside_the_event_loop() -> None:
    value = {"a": ["x" * 100] * 5000}
    assert (await always(json=value).call(operation(responses=JSON_BODY))).data == value


@pytest.mark.parametrize("size", [3, 300_000])
@pytest.mark.parametrize(
    "charset", ["punycode", "undefined", "idna", "unicode_escape", "iso2022_jp", "utf-7", "rot13", "zlib", "x" * 30]
)
async def test_an_encoding_that_is_not_one_of_text_counts_as_utf_8(charset: str, size: int) -> None:
    content = "ü".encode() * size + b"\xff"
    for status in (200, 500):
        api = always(status, content=content, headers={"content-type": f"text/plain; charset={charset}"})
        result = await api.call(operation(), limits=OpenApiLimits(max_error_body=1_000_000))
        assert result.text.endswith("ü" * size + "\ufffd")


@pytest.mark.parametrize("size", [1, 100_000])
@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("UTF-16", "aü€"),
        ("ISO-8859-1", "aü"),
        ("windows-1252", "aü€"),
        ("Shift_JIS", "aあ"),
        ("gb18030", "a中€"),
        ("EUC-KR", "a가"),
        ("koi8-r", "aж"),
    ],
)
async def test_text_in_a_common_encoding_is_read(charset: str, text: str, size: int) -> None:
    headers = {"content-type": f'text/plain; charset="{charset}"'}
    result = await always(content=(text * size).encode(charset), headers=headers).call(operation())
    assert result.text == text * size


@pytest.mark.parametrize("encoding", sorted({*ENCODINGS.values()}))
def test_an_encoding_is_decoded_in_pieces_and_asks_between_them_whether_to_go_on(encoding: str) -> None:
    asked: list[None] = []
    assert decoded(b"\xff\x81" * PIECE, encoding, lambda: asked.append(None))
    assert len(asked) == 2


async def test_a_resource_that_is_text_is_read_as_a_result_is() -> None:
    headers = {"content-type": "text/plain; charset=punycode"}
    api = always(content="ü".encode() * 100_000, headers=headers)
    async with api.connected(operation(), resources=True) as client:
        (contents,) = (await client.read_resource("openapi://api/x")).contents
    assert isinstance(contents, TextResourceContents)
    assert contents.text == "ü" * 100_000


class Slow(codecs.IncrementalDecoder):
    """Decodes the first piece until what waits for it is cancelled, and notes each piece."""

    pieces: ClassVar[list[object]] = []

    def decode(self, piece: object, final: bool = False) -> str:
        self.pieces.append(piece)
        if len(self.pieces) == 1:
            with suppress(trio.Cancelled):
                trio.from_thread.run(trio.sleep_forever)
        return ""


@pytest.fixture
def slow_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """What is decoded of bodies in the encoding `slow`."""

    def found(name: str) -> codecs.CodecInfo | None:
        if name != "slow":
            return None
        return codecs.CodecInfo(codecs.utf_8_encode, codecs.utf_8_decode, incrementaldecoder=Slow)

    monkeypatch.setattr(Slow, "pieces", [])
    monkeypatch.setitem(ENCODINGS, "slow", "slow")
    codecs.register(found)
    yield Slow.pieces
    codecs.unregister(found)


@pytest.mark.parametrize("kind", ["tool", "resource"])
async def test_reading_a_large_response_ends_with_the_timeout_of_its_call(kind: str, slow_pieces: list[object]) -> None:
    # With the real clock: what reads is in a thread, which has to end by itself.
    api = always(content=b"x" * 10 * PIECE, headers={"content-type": "text/plain; charset=slow"})
    server = api.server(operation(), resources=True).copy(options=ServiceOptions(max_seconds=0.5))
    async with connected(server) as client:
        if kind == "tool":
            assert unnamed((await client.call_tool("run")).text, "0.5 seconds") == []
        else:
            with pytest.raises(PeerError, match=naming("0.5 seconds")):
                await client.read_resource("openapi://api/x")
    # None, where it took all the time to come so far.
    assert len(slow_pieces) < 2


BLOCKS: list[tuple[str, dict[str, str], bytes, str]] = [
    ("text/html; charset=latin-1", {}, "ü".encode("latin-1"), "text"),
    ("text/plain; charset=nonsense", {}, b"a", "text"),
    ("image/webp", {}, b"RIFF", "image"),
    ("audio/mpeg", {}, b"ID3", "audio"),
    ("application/pdf", {}, b"%PDF", "resource"),
    ("text/csv", {"content-disposition": 'attachment; filename="../../a.csv"'}, b"a,b", "resource"),
    ("", {}, b"\0", "resource"),
]


@pytest.mark.parametrize(("media_type", "headers", "content", "kind"), BLOCKS)
async def test_the_media_type_decides_the_block(
    media_type: str, headers: dict[str, str], content: bytes, kind: str
) -> None:
    typed = {**headers, **({"content-type": media_type} if media_type else {})}
    (block,) = (await always(content=content, headers=typed).call(operation())).check().content
    assert block.type == kind
    if block.type == "resource":
        assert block.resource.uri in ("file:///x", "file:///a.csv")


async def test_an_image_that_the_document_does_not_declare_is_one() -> None:
    result = await always(content=b"\x89PNG", headers={"content-type": "image/png"}).call(
        operation(responses={"204": {"description": ""}})
    )
    assert result.content[0].type == "image"


# the memory budget

LARGE = 200_000
ROOM = 10 * LARGE


def budgeted(body: Callable[[], httpx2.Response], drawn: list[int], total: int = ROOM) -> Server:
    """A server whose operation gets this response; what is drawn when it has come is noted."""
    budget = MemoryBudget(total)
    server = (
        Api(lambda _request: body()).server(operation(), resources=True).copy(options=ServiceOptions(memory=budget))
    )

    @server.middleware
    async def note(_request: CallRequest, handler: CallHandler) -> CallResult:
        result = await handler()
        drawn.append(budget.drawn)
        return result

    return server


@pytest.mark.parametrize("kind", ["json", "text", "gzip"])
async def test_a_response_draws_from_the_memory_budget_until_its_call_ends(kind: str, mode: str) -> None:
    data = json.dumps(["x" * LARGE]).encode()
    bodies = {
        "json": lambda: httpx2.Response(200, content=data, headers={"content-type": "application/json"}),
        "text": lambda: httpx2.Response(200, text="x" * LARGE),
        "gzip": lambda: httpx2.Response(
            200, stream=Body(gzip.compress(data)), headers={"content-encoding": "gzip", "content-type": "text/plain"}
        ),
    }
    drawn: list[int] = []
    server = budgeted(bodies[kind], drawn)
    async with connected(server, mode=mode) as client:
        result = await client.call_tool("run")
        assert not result.is_error, result.text
        await client.read_resource("openapi://api/x")
    assert [amount >= LARGE for amount in drawn] == [True, True]
    assert server.options.memory.drawn == 0


async def test_a_response_without_room_is_an_error_and_its_connection_is_closed() -> None:
    body = Body(*[b"x" * 50_000] * 20)
    drawn: list[int] = []
    server = budgeted(lambda: httpx2.Response(200, stream=body), drawn, 500_000)
    async with connected(server) as client:
        result = await client.call_tool("run")
    assert result.is_error
    assert "memory" in result.text
    assert body.closed
    assert server.options.memory.drawn == 0
