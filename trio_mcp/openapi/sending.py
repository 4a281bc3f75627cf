"""Sending a request to an API, and reading its response within limits.

The author supplies the HTTP client, and all callers share it. Its own handling of cookies and redirects is therefore not used: a
cookie that the API sets for one caller would be sent with the calls of others, and a redirect could send credentials to another
host.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar
from urllib.parse import urljoin, urlsplit

import trio

from ..base.checks import header_fault
from ..base.logs import RepeatedRecords, peer_logger
from ..errors import LimitExceeded, ToolError
from ..runtime.loop_turn import MANY_PIECES, BodyTooLarge, PiecesInTurns, PiecesTooSmall
from .bodies import FormFile

logger = peer_logger("trio_mcp.openapi")

MAX_REDIRECTS: Final = 5
CLOSE_SECONDS: Final = 2.0
"""Seconds for closing a response that was given up."""

KEPT_METHOD: Final = frozenset({307, 308})
"""The redirects that repeat the request as it was; the others turn it into a GET."""
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
PLAIN: Final = ("", "identity")
"""The content codings that mean that a body is not compressed."""
LIBRARY_HEADERS: Final = frozenset({"accept", "accept-encoding", "connection", "user-agent"})
"""Headers that an HTTP library gives each client."""
PORTS: Final = {"http": 80, "https": 443}


class HttpRequest(Protocol):
    """A request that has been built but not sent."""

    @property
    def headers(self) -> MutableMapping[str, str]: ...


class HttpResponse(Protocol):
    """A response whose body has not been read yet."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        ...

    def aiter_raw(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes, still compressed."""
        ...

    async def aclose(self) -> None: ...


RequestT = TypeVar("RequestT", bound=HttpRequest)


class HttpClient(Protocol[RequestT]):
    """What sends the requests; `httpx2.AsyncClient` is one."""

    @property
    def base_url(self) -> object:
        """The URL that the paths of requests are appended to; `str()` of it is its text."""
        ...

    def build_request(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None,
        files: Sequence[FormFile] | None,
        headers: Mapping[str, str],
        timeout: float,
    ) -> RequestT:
        """Return a request, with the headers of the client."""
        ...

    async def send(self, request: RequestT, *, stream: bool, follow_redirects: bool) -> HttpResponse:
        """Send a request and return the response as soon as its headers have come."""
        ...


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to an API. `cookies` is the value of the header, or None."""

    method: str
    url: str
    headers: Mapping[str, str]
    cookies: str | None = None
    content: bytes | None = None
    files: Sequence[FormFile] | None = None


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response of an API, read within the limit.

    Attributes:
        url: what answered, after any redirects.
        location: where it leads, if that is another host.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    location: str | None = None

    @property
    def content_type(self) -> str:
        """The media type, without parameters and in lower case; empty if there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


Keep: TypeAlias = Callable[[int], None]
"""Counts bytes that are held until the call ends; raises `LimitExceeded` if there is no room for them."""


def keep_nothing(_size: int) -> None:
    """Count nothing: outside of calls."""


class ApiClient(Generic[RequestT]):
    """Sends requests with an author's HTTP client.

    Args:
        timeout: seconds for one request with its redirects and its response.
        max_response: bytes of a response.

    Raises:
        ValueError: the client has parameters for each query, which would replace those of a call.
    """

    def __init__(self, client: HttpClient[RequestT], timeout: float, max_response: int) -> None:
        if getattr(client, "params", None):
            raise ValueError(
                "the client has params=, in place of which no query of a call is sent: use credentials= for them"
            )
        self._client = client
        self._timeout = timeout
        self._max_response = max_response
        self._records = RepeatedRecords(logger)

    @property
    def own_cookies(self) -> list[str]:
        """The cookies of the `Cookie` header that the author gave the client, as `name=value`."""
        # Read from the client: the header of a request may have cookies of an earlier response, too.
        return cookie_parts(self._given_headers().get("cookie", ""))

    @property
    def own_headers(self) -> list[str]:
        """The names of the headers that the author gave the client."""
        return [name for name in self._given_headers() if name not in LIBRARY_HEADERS]

    def _given_headers(self) -> dict[str, str]:
        headers = getattr(self._client, "headers", None)
        return {str(name).lower(): str(text) for name, text in headers.items()} if isinstance(headers, Mapping) else {}

    async def send(self, request: ApiRequest, keep: Keep = keep_nothing) -> ApiResponse:
        """Send a request, follow redirects to the same host, and return the response.

        Args:
            keep: counts the bytes of the response that are held.

        Raises:
            LimitExceeded: there is no room for it.
            ToolError: the API cannot be reached, takes too long, or sends too much. The text states whether the request may have
                taken effect.

        A cancel closes the connection.
        """
        with trio.move_on_after(self._timeout) as scope:
            for _ in range(MAX_REDIRECTS + 1):
                response = await self._exchange(request, keep)
                following = redirected(request, response)
                if following is None:
                    return response
                request = following
            raise ToolError(f"The API redirects more than {MAX_REDIRECTS} times.")
        assert scope.cancelled_caught
        raise ToolError(f"The API has not answered within {self._timeout:g} seconds.{in_doubt(request)}")

    async def _exchange(self, request: ApiRequest, keep: Keep) -> ApiResponse:
        built = self._built(request)
        try:
            response = await self._client.send(built, stream=True, follow_redirects=False)
            try:
                encoding = response.headers.get("content-encoding", "identity").strip().lower()
                # The client decompresses without a limit. Where nothing is compressed, it may have read the body already.
                pieces = response.aiter_bytes() if encoding in PLAIN else response.aiter_raw()
                raw = await read_limited(pieces, self._max_response, keep)
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
                    await response.aclose()
        except (ToolError, LimitExceeded):
            raise
        except Exception as error:  # noqa: BLE001  the errors of the author's client have no class that is known here
            self._records.log("%s %s failed", request.method, urlsplit(request.url).path, exc_info=error)
            raise ToolError(f"The API cannot be reached ({type(error).__name__}).{in_doubt(request)}") from None
        headers = response.headers
        body = raw
        if encoding not in PLAIN:
            # A few bytes may become as many as the limit.
            body = await trio.to_thread.run_sync(decompressed, raw, encoding, self._max_response)
            keep(len(body))
        location = headers.get("location") if response.status_code in REDIRECTS else None
        url = request.url
        return ApiResponse(
            response.status_code, headers, body, url, None if location is None else joined_url(url, location)
        )

    def _built(self, request: ApiRequest) -> RequestT:
        """Return a request of the author's client. Raises `ToolError` if it takes no such URL or header."""
        try:
            built = self._client.build_request(
                request.method,
                request.url,
                content=request.content,
                files=request.files,
                # What is compressed could be a thousand times as large as what was sent. And where there is a `Cookie`, the
                # library writes none itself, which fails once the API has set a cookie that no header can have.
                headers={"accept-encoding": "identity", "cookie": "", **request.headers},
                timeout=self._timeout,
            )
            built.headers.pop("cookie", None)
            if request.cookies is not None:
                built.headers["cookie"] = request.cookies
        except Exception as error:  # noqa: BLE001  as below; a caller's argument may be too long, or a redirect wrong
            self._records.log("a request cannot be made", exc_info=error)
            length = len(request.url)
            raise ToolError(
                f"The request cannot be made ({type(error).__name__}); its URL has {length} characters."
            ) from None
        for name, value in built.headers.items():
            # The library would reject it as well, but with the value in its error, which is logged.
            if fault := header_fault(value):
                self._records.log("a request cannot be made: the value of its header %r %s", name, fault)
                raise ToolError("The request cannot be made: one of its headers cannot be sent.")
        return built


def cookie_parts(header: str) -> list[str]:
    """Return the cookies of a `Cookie` header, as `name=value`."""
    return [part for each in header.split(";") if (part := each.strip())]


def in_doubt(request: ApiRequest) -> str:
    """Return what a caller must know about a request that got no response."""
    return "" if request.method in SAFE else " The request may have taken effect all the same."


async def read_limited(pieces: AsyncIterator[bytes], limit: int, keep: Keep) -> bytes:
    """Return all of a body.

    Raises:
        ToolError: it has more bytes than the limit, or many pieces of a few bytes.
        LimitExceeded: `keep` has no room for it.
    """
    try:
        return await PiecesInTurns(pieces).read(limit, keep)
    except BodyTooLarge:
        refused = too_large(limit)
    except PiecesTooSmall:
        refused = ToolError(f"The API sends its response in more than {MANY_PIECES} pieces of a few bytes.")
    finally:
        # A generator that is left in the middle is closed in its own task, and not by the garbage collector.
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
    raise refused


def decompressed(data: bytes, encoding: str, limit: int) -> bytes:
    """Return a body without its compression. Raises `ToolError` if it is too large, or compressed in another way than by zlib."""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ToolError(f"The API compressed its response ({encoding:.40}), although it was asked not to.")
    # 32: of either format, by its header.
    reader = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        whole = reader.decompress(data, limit + 1)
    except zlib.error:
        raise ToolError("The response of the API is compressed, and cannot be read.") from None
    if len(whole) > limit:
        raise too_large(limit)
    return whole


def too_large(limit: int) -> ToolError:
    return ToolError(f"The response of the API has more than {limit} bytes, which is the limit. Ask for less of it.")


def redirected(request: ApiRequest, response: ApiResponse) -> ApiRequest | None:
    """Return the request that a redirect asks for; None if it leads to another host, or would send something else again."""
    if response.location is None or not same_origin(request.url, response.location):
        return None
    if response.status in KEPT_METHOD:
        method, content, files, headers = request.method, request.content, request.files, request.headers
    elif request.method in SAFE or response.status == 303:
        method, content, files = ("GET" if request.method != "HEAD" else "HEAD"), None, None
        headers = {name: value for name, value in request.headers.items() if name.lower() != "content-type"}
    else:
        return None
    return ApiRequest(method, response.location, headers, request.cookies, content, files)


def joined_url(base: str, reference: str) -> str | None:
    """Return the URL that a reference of an API leads to; None if it is not one."""
    try:
        return urljoin(base, reference)
    except ValueError:
        return None


def same_origin(first: str, second: str) -> bool:
    """Return whether two URLs have the same scheme, host and port."""
    try:
        return origin_of(first) == origin_of(second)
    except ValueError:
        return False


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return the scheme, the host and the port of a URL. Raises `ValueError` for a wrong port."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", PORTS.get(parts.scheme) if parts.port is None else parts.port
