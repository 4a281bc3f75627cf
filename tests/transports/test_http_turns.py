"""Requests that are small and dear do not hold up the event loop, whether they come in one body or on many connections."""

from __future__ import annotations

import pytest
import trio
from asgi_peer import AsgiPeer, initialize, modern_request, served
from dear_reads import AT_ONCE, DEAR_READS, ORDER, READS, DearReads, dear_uri

from trio_mcp_transports.http import McpApp, asgi_app

BATCHING = "2025-03-26"


async def batching(peer: AsgiPeer) -> dict[str, str]:
    """Open a session in which batches may be sent; return its headers."""
    headers = await peer.open_session({}, BATCHING)
    del headers["mcp-protocol-version"]
    return headers


async def test_others_have_a_turn_between_the_messages_of_a_batch_that_are_dear() -> None:
    dear = DearReads()
    async with served(asgi_app(dear.server)) as peer:
        headers = await batching(peer)
        async with dear.watched():
            reply = await peer.post(DEAR_READS, headers)
    assert {answer["id"] for answer in reply.last} == set(range(1, READS + 1))
    assert dear.compared == ORDER
    assert dear.most_at_once <= AT_ONCE


async def test_others_have_a_turn_between_the_messages_of_a_batch_that_is_posted_to_a_stream() -> None:
    dear = DearReads()
    async with served(asgi_app(dear.server, sse_path="/sse")) as peer:
        stream = peer.start(b"", {"host": "localhost:8000", "accept": "text/event-stream"}, method="GET", path="/sse")
        await stream.until("session_id")
        path, _, query = stream.body.decode().partition("data: ")[2].strip().partition("?")
        assert (await peer.post(initialize({}, BATCHING), path=path, query=query)).status == 202
        await stream.until("serverInfo")
        async with dear.watched():
            assert (await peer.post(DEAR_READS, path=path, query=query)).status == 202
            await stream.until(f'"id":{READS},')
        stream.gone.set()
    assert dear.compared == ORDER
    assert dear.most_at_once <= AT_ONCE


async def test_a_session_that_ends_in_the_middle_of_a_batch_answers_it_with_404_and_holds_nothing() -> None:
    dear = DearReads()
    app = asgi_app(dear.server)
    async with served(app) as peer:
        headers = await batching(peer)
        held = app.service.statistics().memory.drawn
        reply = peer.start(DEAR_READS, headers)
        with trio.fail_after(5):
            while not dear.events:
                await trio.lowlevel.checkpoint()
        assert (await peer.post(b"", headers, method="DELETE")).status == 204
        assert (await reply.end()).status == 404
        await until_idle(app)
        assert app.service.statistics().memory.drawn < held
    assert len(dear.compared) < READS


async def until_idle(app: McpApp) -> None:
    with trio.fail_after(5):
        while app.service.supervisor.statistics().running:
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_others_have_a_turn_between_requests_that_many_connections_send_together(era: str) -> None:
    dear = DearReads()
    async with served(asgi_app(dear.server)) as peer:
        session = await peer.open_session()
        async with dear.watched():
            replies = []
            for number, read in enumerate(DEAR_READS, 1):
                body, headers = modern_request("resources/read", {"uri": dear_uri(number)}, id=number)
                named = {**headers, "mcp-name": dear_uri(number)}
                replies.append(peer.start(body, named) if era == "modern" else peer.start(read, session))
            statuses = [(await reply.end()).status for reply in replies]
    assert statuses == [200] * READS
    assert sorted(dear.compared) == ORDER
    assert dear.most_at_once <= AT_ONCE
