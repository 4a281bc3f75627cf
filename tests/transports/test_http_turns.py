"""Small but expensive requests do not block the event loop, whether they come in one body or on many connections."""

from __future__ import annotations

import pytest
import trio
from asgi_peer import AsgiPeer, initialize, modern_request, served
from expensive_reads import EXPENSIVE_READS, ORDER, READS, ExpensiveReads, at_once, expensive_uri

from trio_mcp_transports.http import McpApp, asgi_app

BATCHING = "2025-03-26"


async def batching(peer: AsgiPeer) -> dict[str, str]:
    """Open a session in which batches may be sent; return its headers."""
    headers = await peer.open_session({}, BATCHING)
    del headers["mcp-protocol-version"]
    return headers


async def test_others_have_a_turn_between_expensive_messages_of_a_batch() -> None:
    reads = ExpensiveReads()
    async with served(asgi_app(reads.server)) as peer:
        headers = await batching(peer)
        async with reads.watched():
            reply = await peer.post(EXPENSIVE_READS, headers)
    assert {answer["id"] for answer in reply.last} == set(range(1, READS + 1))
    assert reads.compared == ORDER
    assert reads.most_at_once <= at_once()


async def test_others_have_a_turn_between_the_messages_of_a_batch_that_is_posted_to_a_stream() -> None:
    reads = ExpensiveReads()
    async with served(asgi_app(reads.server, sse_path="/sse")) as peer:
        stream, where = await peer.open_stream()
        assert (await peer.post(initialize({}, BATCHING), **where)).status == 202
        await stream.until("serverInfo")
        async with reads.watched():
            assert (await peer.post(EXPENSIVE_READS, **where)).status == 202
            await stream.until(f'"id":{READS},')
        stream.gone.set()
    assert reads.compared == ORDER
    assert reads.most_at_once <= at_once()


async def test_a_session_that_ends_in_the_middle_of_a_batch_answers_it_with_404_and_holds_nothing() -> None:
    reads = ExpensiveReads()
    app = asgi_app(reads.server)
    async with served(app) as peer:
        headers = await batching(peer)
        held = app.service.statistics().memory.drawn
        reply = peer.start(EXPENSIVE_READS, headers)
        with trio.fail_after(5):
            while not reads.events:
                await trio.lowlevel.checkpoint()
        assert (await peer.post(b"", headers, method="DELETE")).status == 204
        assert (await reply.end()).status == 404
        await until_idle(app)
        assert app.service.statistics().memory.drawn < held
    assert len(reads.compared) < READS


async def until_idle(app: McpApp) -> None:
    with trio.fail_after(5):
        while app.service.supervisor.statistics().running:
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_others_have_a_turn_between_requests_that_many_connections_send_together(era: str) -> None:
    reads = ExpensiveReads()
    async with served(asgi_app(reads.server)) as peer:
        session = await peer.open_session()
        async with reads.watched():
            replies = []
            for number, read in enumerate(EXPENSIVE_READS, 1):
                body, headers = modern_request("resources/read", {"uri": expensive_uri(number)}, id=number)
                named = {**headers, "mcp-name": expensive_uri(number)}
                replies.append(peer.start(body, named) if era == "modern" else peer.start(read, session))
            statuses = [(await reply.end()).status for reply in replies]
    assert statuses == [200] * READS
    assert sorted(reads.compared) == ORDER
    assert reads.most_at_once <= at_once()
