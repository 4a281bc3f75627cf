"""Fixtures for a legacy session and the run of its tool."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from asgi_peer import AsgiPeer, served
from stage import Stage, Talk
from talking import GRACE, Session, WatchedStore

from trio_mcp_transports.http import HttpLimits, asgi_app


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def talk(stage: Stage) -> Talk:
    """The next run of the tool `talk`."""
    return stage.expect()


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore()


@pytest.fixture
async def peer(stage: Stage, store: WatchedStore) -> AsyncIterator[AsgiPeer]:
    """A client of the stage, which has room for three sessions."""
    limits = HttpLimits(body=10_000, sessions=3, session_idle=100, disconnect_grace=GRACE, body_seconds=5)
    async with served(asgi_app(stage.server, limits=limits, event_store=store)) as peer:
        yield peer


@pytest.fixture
async def session(peer: AsgiPeer) -> Session:
    return Session(peer, await peer.open_session())
