"""What a client over HTTP does with a response in very many pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from trio_mcp_transports.httpx import read_body

MANY_PIECES = 10_000


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, count: int, size: int) -> None:
        self._count, self._size = count, size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._count):
            yield b"x" * self._size


async def test_an_answer_in_too_many_small_pieces_is_an_error() -> None:
    whole = httpx2.Response(200, stream=Pieces(MANY_PIECES, 1))
    assert len(await read_body(whole, 1_000_000)) == MANY_PIECES
    with pytest.raises(httpx2.ReadError, match=str(MANY_PIECES)):
        await read_body(httpx2.Response(200, stream=Pieces(MANY_PIECES + 1, 1)), 1_000_000)
