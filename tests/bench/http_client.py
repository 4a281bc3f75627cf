"""An HTTP client for what the load generator does not do: opening sessions, and keeping many calls open."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import h11
import trio

from .generator import WrongAnswers
from .messages import LEGACY_REVISION, PATH, Era, headers, initialize, initialized

READ_BYTES = 65536
SHOWN_BYTES = 300


class Connection:
    """One connection; one request at a time."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._h11 = h11.Connection(h11.CLIENT)

    async def send(self, method: str, head: Mapping[str, str], body: str = "") -> h11.Response:
        """Send a request; returns the head of the response."""
        if self._h11.our_state is h11.DONE:
            self._h11.start_next_cycle()
        data = body.encode()
        fields = [*head.items(), ("Content-Length", str(len(data)))] if data else list(head.items())
        sent = self._h11.send(h11.Request(method=method, target=PATH, headers=fields)) or b""
        sent += (self._h11.send(h11.Data(data)) if data else b"") or b""
        sent += self._h11.send(h11.EndOfMessage()) or b""
        await self._stream.send_all(sent)
        response = await self._event()
        if not isinstance(response, h11.Response):
            raise WrongAnswers(f"instead of a response: {response!r}")
        return response

    async def post(self, head: Mapping[str, str], body: str) -> tuple[h11.Response, bytes]:
        """Send a request; returns the response and its whole body. Raises `WrongAnswers` unless it is a success."""
        response = await self.send("POST", head, body)
        said = b"".join([part async for part in self.parts()])
        if response.status_code not in (200, 202):
            raise WrongAnswers(f"status {response.status_code}: {said[:SHOWN_BYTES]!r}")
        return response, said

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body of the response as it comes."""
        while isinstance(event := await self._event(), h11.Data):
            yield bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            raise WrongAnswers("the response broke off")

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of the body as they come."""
        rest = b""
        async for part in self.parts():
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                yield line

    async def read_until(self, text: bytes) -> None:
        """Read the body until it holds this text."""
        said = b""
        async for part in self.parts():
            said += part
            if text in said:
                return
        raise WrongAnswers(f"{text!r} is missing from {said[:SHOWN_BYTES]!r}")

    async def _event(self) -> object:
        while (event := self._h11.next_event()) is h11.NEED_DATA:
            self._h11.receive_data(bytes(await self._stream.receive_some(READ_BYTES)))
        return event

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def connected(port: int, *, tls: bool = False) -> AsyncIterator[Connection]:
    """A connection for the length of the block."""
    stream: trio.abc.Stream = await trio.open_tcp_stream("127.0.0.1", port)
    if tls:
        # The certificate is that of our own server.
        context = ssl._create_unverified_context()  # noqa: SLF001
        stream = trio.SSLStream(stream, context, server_hostname="localhost", https_compatible=True)
    async with stream:
        yield Connection(stream)


async def open_session(port: int, more: Mapping[str, str] | None = None, *, tls: bool = False) -> str:
    """Open a legacy session; returns its id.

    Args:
        more: Headers of its requests.
    """
    head = {**headers(port, Era.LEGACY, "initialize"), **(more or {})}
    del head["Mcp-Session-Id"], head["MCP-Protocol-Version"]
    async with connected(port, tls=tls) as connection:
        response, _ = await connection.post(head, initialize())
        session = next((value.decode() for name, value in response.headers if name == b"mcp-session-id"), "")
        await connection.post(
            {**head, "MCP-Protocol-Version": LEGACY_REVISION, "Mcp-Session-Id": session}, initialized()
        )
    return session


def in_session(port: int, session: str) -> dict[str, str]:
    """Return the headers of a POST in this session."""
    return {**headers(port, Era.LEGACY, "tools/call"), "Mcp-Session-Id": session}
