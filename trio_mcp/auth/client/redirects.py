"""The page of this program to which a browser is redirected after a login (RFC 8252, 7.3).

It listens on 127.0.0.1 only, and takes one request: for its own address and path, with the `state` of the login that is waiting.
Any other gets an error, and the login goes on waiting: browsers ask for icons, and any page or program of this machine can send
requests here. The flow checks everything else in the redirect.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

import h11
import trio

from ...base.groups import UnwrappedErrors
from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from .code import has_state, parameters

PATH: Final = "/callback"
MAX_REQUEST: Final = 16 * 1024
"""Bytes of the head of a request."""
REQUEST_SECONDS: Final = 5.0
MAX_CONNECTIONS: Final = 16
"""Connections of browsers at a time; some open several ahead."""

TEXT: Final = "<!doctype html><title>trio-mcp</title><p>%s</p>"
RETURNED: Final = TEXT % "You can close this page. The program where you began the login says whether it succeeded."
REFUSED: Final = TEXT % "The login was refused, and nothing was stored. You can close this page."
ANOTHER: Final = TEXT % "This is not the login that is waiting now. Begin again in the program."
NOTHING: Final = TEXT % "There is nothing here."
HEADERS: Final = (
    ("content-type", "text/html; charset=utf-8"),
    ("content-security-policy", "default-src 'none'"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("connection", "close"),
)


class RedirectPage:
    """The page; made by `open_redirect_page`.

    Attributes:
        uri: the redirect URI.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._host = urlsplit(uri).netloc
        self._state: str | None = None
        self._answer: str | None = None
        self._answered = trio.Event()
        self._places = trio.Semaphore(MAX_CONNECTIONS)

    def expect(self, state: str) -> None:
        """Wait for the redirect of another authorization URL, which has this `state`."""
        self._state, self._answer, self._answered = state, None, trio.Event()

    def answer(self, url: str) -> bool:
        """Take the URL of a redirect, and return whether it is the first one."""
        is_first = self._answer is None
        if is_first:
            self._answer = url
            self._answered.set()
        return is_first

    async def wait(self) -> str:
        """Return the URL of the redirect, with its parameters."""
        await self._answered.wait()
        assert self._answer is not None
        return self._answer

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one request."""
        async with stream, self._places:
            with trio.move_on_after(REQUEST_SECONDS):
                try:
                    await self._respond(stream, h11.Connection(h11.SERVER, MAX_REQUEST))
                except (h11.ProtocolError, trio.BrokenResourceError):
                    return

    async def _respond(self, stream: trio.SocketStream, http: h11.Connection) -> None:
        event = http.next_event()
        while event is h11.NEED_DATA:
            http.receive_data(await stream.receive_some(4096))
            event = http.next_event()
        if not isinstance(event, h11.Request):
            return
        status, text = self._take(event)
        body = text.encode()
        length = ("content-length", str(len(body)))
        response = h11.Response(status_code=status, headers=[*HEADERS, length])
        for each in (response, h11.Data(data=body), h11.EndOfMessage()):
            await stream.send_all(http.send(each) or b"")

    def _take(self, request: h11.Request) -> tuple[int, str]:
        """Take a request if it is the redirect, and return the status and the page of the response."""
        path, _, query = request.target.decode("latin-1").partition("?")
        hosts = [value.decode("latin-1").lower() for name, value in request.headers if name == b"host"]
        # Another name may lead to this machine: a page of it could read the response (DNS rebinding).
        if request.method != b"GET" or path != PATH or hosts != [self._host] or not query:
            return 404, NOTHING
        url = f"{self.uri}?{query}"
        with suppress(AuthorizationError):
            found = parameters(url)
            if self._state is not None and has_state(found, self._state) and self.answer(url):
                return 200, REFUSED if "error" in found else RETURNED
        return 400, ANOTHER


@asynccontextmanager
async def open_redirect_page(port: int, wanted: str | None = None) -> AsyncGenerator[RedirectPage]:
    """Serve the page for the length of the block.

    Args:
        port: 0 for any free one. Servers accept any port of an address, but only a fixed one of a name, so the redirect URI of a
            fixed port has the name `localhost`.
        wanted: the redirect URI of an earlier login, which is used again if its port is free.

    Raises:
        AuthorizationError: the port is taken.
    """
    listeners, uri = await listen(port, wanted)
    page = RedirectPage(uri)
    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, page.serve, listeners)
            yield page
            nursery.cancel_scope.cancel()


async def listen(port: int, wanted: str | None) -> tuple[list[trio.SocketListener], str]:
    before = urlsplit(wanted).port if wanted is not None and not port else None
    if before is not None and wanted is not None:
        try:
            return await trio.open_tcp_listeners(before, host="127.0.0.1"), wanted
        except OSError:
            pass
    try:
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
    except OSError as error:
        raise AuthorizationError(
            f"the port {port} for the redirect cannot be used: {error}", kind=Kind.RESPONSE
        ) from None
    found = listeners[0].socket.getsockname()[1]
    return listeners, f"http://{'localhost' if port else '127.0.0.1'}:{found}{PATH}"
