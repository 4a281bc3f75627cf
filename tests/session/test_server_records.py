"""What clients can make a server log: a bounded number of records a minute, however many sessions and connections they open."""

from __future__ import annotations

import logging
import re

import pytest
import trio
from ends import memory_ends
from log_limits import SHOWN
from peer import ChannelClient
from talk import Talk, offering, talk_to
from trio.testing import wait_all_tasks_blocked

from trio_mcp import CancelReason, Server, ServiceOptions
from trio_mcp.session import Service, serve_channel

TIMES = 100
MALFORMED = b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": []}}'


async def wait() -> None:
    """Never end."""
    await trio.sleep_forever()


def counts(caplog: pytest.LogCaptureFixture, word: str) -> list[int]:
    """For how many each record with this word stands."""
    texts = [record.getMessage() for record in caplog.records if word in record.getMessage()]
    numbers = [re.match(r"\d+", text) for text in texts]
    return [1 if number is None else int(number[0]) for number in numbers]


async def test_one_session_shows_each_kind_of_malformed_message_once(caplog: pytest.LogCaptureFixture) -> None:
    async with talk_to(offering(wait)) as talk:
        for _ in range(TIMES):
            talk.send_bytes(MALFORMED)
        assert counts(caplog, "dropped") == [1]


async def test_malformed_messages_of_many_sessions_share_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    async with talk_to(offering(wait)) as first:
        for _ in range(TIMES):
            talk = Talk(first.service)
            for _ in range(3):
                talk.send_bytes(MALFORMED)
            talk.session.close(CancelReason.DISCONNECT)
        assert len(counts(caplog, "dropped")) == SHOWN
    # The end of the service logs how many were not shown.
    assert len(counts(caplog, "dropped")) == SHOWN + 1
    assert sum(counts(caplog, "dropped")) == 3 * TIMES


async def leave_a_call_behind(service: Service) -> None:
    ours, theirs = memory_ends()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_channel, service, theirs)
        client = ChannelClient(ours)
        await client.initialize()
        await client.call("wait")
        await wait_all_tasks_blocked()
        await ours.aclose()


async def test_connections_that_are_lost_share_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with talk_to(offering(wait)) as talk:
        for _ in range(3 * SHOWN):
            await leave_a_call_behind(talk.service)
    assert len(counts(caplog, "the client is gone")) == SHOWN + 1
    assert sum(counts(caplog, "the client is gone")) == 3 * SHOWN


async def fail(number: int) -> None:
    """Fail, in one of two ways."""
    raise KeyError(number) if number % 2 else OSError("the disk is full")


async def test_a_tool_that_fails_again_and_again_shows_a_bounded_number_of_tracebacks_and_every_reference(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = offering(fail).copy(options=ServiceOptions(tell_errors=False))
    async with talk_to(server) as talk:
        problems = [await talk.failure(talk.leg("fail", {"number": number})) for number in range(TIMES)]
    records = [record for record in caplog.records if record.name == "trio_mcp.tool"]
    references = [text.rstrip(".").rpartition(" ")[2] for text in problems]
    assert [f"[{reference}]" in record.getMessage() for reference, record in zip(references, records, strict=True)] == (
        [True] * TIMES
    )
    assert sum(record.exc_info is not None for record in records) == 2 * SHOWN
    assert "the disk is full" in records[-2].getMessage()


async def test_a_resource_that_fails_again_and_again_shows_as_few_whatever_its_uri(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("failing", options=ServiceOptions(tell_errors=False))

    @server.resource("data://{name}")
    async def read(name: str) -> str:
        raise OSError(name)

    async with talk_to(server) as talk:
        for number in range(TIMES):
            await talk.error(talk.ask("resources/read", uri=f"data://{number}"))
    records = [record for record in caplog.records if record.name == "trio_mcp.call"]
    assert (len(records), sum(record.exc_info is not None for record in records)) == (TIMES, SHOWN)
