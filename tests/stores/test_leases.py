"""When a lease is renewed, and when it is too early to bury another process: without a server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio
from waiting import until

from trio_mcp.stores import StoreError, leases
from trio_mcp.stores.leases import Leases, Renewal

BOUND = 20


class Server:
    """A server that renews leases, unless it is away."""

    def __init__(self) -> None:
        self.renewals: list[list[str]] = []
        self.buried: list[str] = []
        self.ahead = 0.0
        self.is_away = False
        self.is_closed = False

    def renew(self, nodes: Mapping[str, bytes]) -> Renewal:
        if self.is_away:
            raise StoreError("away")
        self.renewals.append(list(nodes))
        return Renewal(time.time() + self.ahead, self.buried)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture(autouse=True)
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(leases, "QUIET_SECONDS", 0.2)


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[Leases]:
    made = Leases("here", server.renew, server.close, time.time)
    made.renew()
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.run)
            yield made
            made.stop()
    assert server.is_closed


def may_bury(made: Leases) -> bool:
    return made.bury_until() >= time.time()


async def test_a_process_renews_the_leases_of_all_its_names(server: Server) -> None:
    async with running(server) as made:
        made.joined("a", b"about")
        made.joined("b", b"")
        await until(lambda: server.renewals[-1] == ["a", "b"])


async def test_a_process_buries_no_other_one_just_after_its_start(server: Server) -> None:
    async with running(server) as made:
        assert not may_bury(made)
        await until(lambda: may_bury(made))


async def test_a_process_that_has_not_reached_the_store_for_a_while_buries_no_other_one_until_later(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LATE_SECONDS", 0.1)
    async with running(server) as made:
        await until(lambda: may_bury(made))
        server.is_away = True
        await until(lambda: not may_bury(made))
        server.is_away = False
        renewals = len(server.renewals)
        await until(lambda: len(server.renewals) > renewals + 2)
        assert not may_bury(made)
        await until(lambda: may_bury(made))


async def test_a_clock_of_the_store_that_jumps_counts_as_an_outage(server: Server) -> None:
    async with running(server) as made:
        await until(lambda: may_bury(made))
        server.ahead = 60
        await until(lambda: not may_bury(made))
        await until(lambda: may_bury(made))


async def test_a_lease_is_renewed_while_the_event_loop_is_blocked_but_not_for_long(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(server):
        await until(lambda: len(server.renewals) > 1)
        renewals = len(server.renewals)
        time.sleep(0.5)  # noqa: ASYNC251  that is the point
        assert len(server.renewals) > renewals + 2
        await trio.sleep(0.1)
        monkeypatch.setattr(leases, "STUCK_SECONDS", 0.1)
        time.sleep(0.5)  # noqa: ASYNC251
        renewals = len(server.renewals)
        time.sleep(0.5)  # noqa: ASYNC251
        assert len(server.renewals) == renewals
        await until(lambda: len(server.renewals) > renewals)


async def test_a_clock_that_differs_is_counted_and_logged_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.ahead = 0.5
    async with running(server) as made:
        assert made.offset == 0
        server.ahead = -3600
        await until(lambda: made.offset != 0)
        assert round(made.offset) == -3600
        renewals = len(server.renewals)
        await until(lambda: len(server.renewals) > renewals + 3)
    assert caplog.text.count("differs by") == 1


async def test_a_name_that_was_buried_is_a_lapse_and_the_next_name_takes_its_place(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(server) as made:
        made.joined("a", b"")
        server.buried = ["a"]
        await until(lambda: made.lapses == 1)
        renewals = len(server.renewals)
        await until(lambda: len(server.renewals) > renewals + 2)
        assert made.lapses == 1
        assert list(made.nodes) == ["a"]
        made.joined("b", b"")
        assert list(made.nodes) == ["b"]
    assert "taken for dead" in caplog.text


async def test_an_answer_that_makes_no_sense_ends_no_process_and_the_lease_is_renewed_again(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def renew(_nodes: Mapping[str, bytes]) -> Renewal:
        raise TypeError("this is no renewal")

    usual = server.renew
    async with running(server) as made:
        made._renew = renew  # noqa: SLF001
        await until(lambda: "this is no renewal" in caplog.text)
        made._renew = usual  # noqa: SLF001
        before = len(server.renewals)
        await until(lambda: len(server.renewals) > before)


async def test_an_error_within_a_store_is_in_no_group(server: Server) -> None:
    made = Leases("here", server.renew, server.close, time.time)
    with trio.fail_after(BOUND), pytest.raises(StoreError, match="of the block"):
        async with leases.running(made):
            raise StoreError("of the block")
    assert server.is_closed
