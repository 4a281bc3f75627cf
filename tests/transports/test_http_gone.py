"""A client that has gone, where the ASGI server tells so by raising `OSError` in `send` and in no other way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
import trio
from asgi_peer import AsgiPeer, legacy_call, modern_call
from stage import Stage

from trio_mcp import CancelReason


async def send_to_nobody(_message: Mapping[str, Any]) -> None:
    await trio.lowlevel.checkpoint()
    raise OSError("the client has left")


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_send_that_fails_cancels_the_call(stage: Stage, peer: AsgiPeer, era: str) -> None:
    await call_and_leave(peer, era)
    await stage.ended.wait()
    assert stage.reason is CancelReason.DISCONNECT


async def call_and_leave(peer: AsgiPeer, era: str) -> None:
    meta = {"progressToken": "t"}
    if era == "modern":
        body, headers = modern_call("wait", meta=meta)
    else:
        headers = await peer.open_session()
        body = legacy_call("wait", _meta=meta)
    unread = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not unread:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return unread.pop()

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    with suppress(OSError):
        await peer.app(scope, receive, send_to_nobody)
