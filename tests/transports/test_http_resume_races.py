"""A resume may arrive in the very turn of the event loop in which the reader before it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio
from asgi_peer import Reply
from talking import Session, Talk, said

RESUMES = 300


class PromptReply(Reply):
    """A reply whose writes take no turn of the event loop, as those of a server may that writes to the kernel at once."""

    async def send(self, message: Mapping[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.ended.set()


def resume(session: Session, seen: int) -> Reply:
    """Ask for what comes after that event."""
    reply = PromptReply()
    named = {**session.headers, "accept": "text/event-stream", "last-event-id": f"1-{seen}"}
    headers = [(name.encode(), value.encode()) for name, value in named.items()]

    async def receive() -> dict[str, Any]:
        await reply.gone.wait()
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": "/mcp", "headers": headers}
    session.peer.nursery.start_soon(session.peer.app, scope, receive, reply.send)
    return reply


async def leave_and_resume(session: Session, reply: Reply, seen: int, turns: int) -> Reply:
    """Break the connection and resume its stream that many turns of the event loop later."""
    reply.gone.set()
    for _ in range(turns):
        await trio.lowlevel.checkpoint()
    return resume(session, seen)


async def test_no_resume_misses_an_event_however_close_the_reader_before_it_left(talk: Talk, session: Session) -> None:
    reply = await session.call()
    await talk.say(0)
    for seen in range(1, RESUMES + 1):
        reply = await leave_and_resume(session, reply, seen, turns=seen % 4)
        await talk.say(seen)
        assert said(reply)[-1:] == [seen]
    await talk.answer()
    assert said(await reply.end())[-1:] == ["done"]
