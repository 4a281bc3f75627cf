"""Those scenarios of the official suite that differ on a pipe: requests, replies, notifications and questions share one stream.

The suite speaks HTTP only. Here its server is a child process, and what it sends is held against the schema file of its
revision. Scenarios with one request and one reply say the same over any wire; they are left to the suite and to the contract.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, get_args

import pytest
import trio
from serving import IMPORTS, ROOT
from wire_oracle import WireOracle

from trio_mcp.protocol.jsonrpc import Malformed, dump
from trio_mcp.protocol.revisions import SUBSCRIPTION_ID
from trio_mcp.session import Envelope
from trio_mcp.testing.contract.peer import EVERYTHING, Peer
from trio_mcp.types import LoggingLevel
from trio_mcp_transports.stdio import connect

COMMAND = [sys.executable, str(ROOT / "examples" / "everything_server.py")]
LEGACY, MODERN = "2025-11-25", "2026-07-28"
WATCHED = "test://watched-resource"
ANSWERS: dict[str, Any] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Alice"}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"},
    "roots/list": {"roots": [{"uri": "file:///test/root"}]},
}

both_eras = pytest.mark.parametrize("revision", [LEGACY, MODERN])


class Checked(trio.abc.Channel[Envelope]):
    """A channel to a server; everything that comes through it is held against the schema files."""

    def __init__(self, channel: trio.abc.Channel[Envelope]) -> None:
        self._channel = channel
        self._oracle = WireOracle()

    async def send(self, value: Envelope) -> None:
        self._oracle.sent(plain(value))
        await self._channel.send(value)

    async def receive(self) -> Envelope:
        envelope = await self._channel.receive()
        self._oracle.heard(plain(envelope))
        return envelope

    async def aclose(self) -> None:
        await self._channel.aclose()


def plain(envelope: Envelope) -> dict[str, Any]:
    assert not isinstance(envelope.message, Malformed), envelope
    message: dict[str, Any] = json.loads(dump(envelope.message))  # type: ignore[arg-type]
    return message


@asynccontextmanager
async def child(revision: str) -> AsyncIterator[Peer]:
    """A peer with a separate server, which ends with its input."""
    with trio.fail_after(20):
        async with connect(COMMAND, env=IMPORTS) as channel:
            yield Peer(Checked(channel), revision, EVERYTHING)
        assert channel.process.returncode == 0


async def before_the_next_answers(peer: Peer) -> list[Any]:
    """The params of what the server says before it has answered a few more requests: a separate task announces a change."""
    for _ in range(3):
        await peer.ping()
    return [message["params"] for message in peer.unread()]


@both_eras
async def test_tools_call_with_progress(revision: str) -> None:
    async with child(revision) as peer:
        await peer.open()
        call = await peer.call("test_tool_with_progress", progress="token")
        await call.text()
        heard: list[Any] = [message["params"] for message in peer.unread()]
    assert [(each["progressToken"], each["progress"]) for each in heard] == [("token", at) for at in (0, 50, 100)]


@both_eras
async def test_tools_call_with_logging(revision: str) -> None:
    """The level is that of the session, or of the request; a request that names none gets no log."""
    async with child(revision) as peer:
        await peer.open()
        if revision == LEGACY:
            assert await peer.result(await peer.request("logging/setLevel", {"level": "error"})) == {}
        await (await peer.call("test_logging_tool", logs="error")).text()
        heard: list[Any] = [message["params"] for message in peer.unread()]
        levels = get_args(LoggingLevel)
        assert [each["level"] for each in heard] == list(levels[levels.index("error") :])
        if revision == MODERN:
            await (await peer.call("test_logging_tool")).text()
            assert await before_the_next_answers(peer) == []


@both_eras
async def test_tools_call_elicitation_sampling_and_roots(revision: str) -> None:
    """A legacy client is asked by requests on the same pipe, a modern one in a round."""
    async with child(revision) as peer:
        await peer.open()
        call = await peer.call("test_input_required_result_multiple_inputs")
        methods = []
        for _ in ANSWERS:
            question = await call.question()
            methods.append(question.method)
            await call.answer(question, ANSWERS[question.method])
        assert sorted(methods) == sorted(ANSWERS)
        assert await call.text() == "Hello, Alice! Paris file:///test/root"


async def test_resources_subscribe_and_unsubscribe() -> None:
    async with child(LEGACY) as peer:
        await peer.open()
        assert await peer.result(await peer.request("resources/subscribe", {"uri": WATCHED})) == {}
        await (await peer.call("test_update_watched_resource", {"text": "first"})).text()
        assert (await peer.message("notifications/resources/updated"))["params"] == {"uri": WATCHED}
        assert await peer.result(await peer.request("resources/unsubscribe", {"uri": WATCHED})) == {}
        await (await peer.call("test_update_watched_resource", {"text": "second"})).text()
        assert await before_the_next_answers(peer) == []


async def test_server_stateless_marks_what_a_subscription_tells() -> None:
    async with child(MODERN) as peer:
        await (await peer.call("test_trigger_tool_change")).text()
        assert await before_the_next_answers(peer) == [], "there is no subscriber"
        listen = await peer.request("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
        acknowledged: Any = await peer.receive()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"] == {"promptsListChanged": True}
        await (await peer.call("test_trigger_tool_change")).text()
        await (await peer.call("test_trigger_prompt_change")).text()
        changed: Any = await peer.message("notifications/prompts/list_changed")
        assert await before_the_next_answers(peer) == []
        assert [notice["params"]["_meta"][SUBSCRIPTION_ID] for notice in (acknowledged, changed)] == [listen, listen]
