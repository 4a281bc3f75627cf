"""Every message of a long conversation is what the schema file of its revision says, and says nothing beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from peer import json_of
from peer_server import server
from processes import FIRST_WITH_FORMS
from spec_schemas import VERSIONS, closed_validator, definitions, request_definitions, validator
from wire_oracle import general_definition, result_definition
from wire_terms import MODERN

from trio_mcp import Client, PeerError, accept, decline
from trio_mcp.cli.terminal.trace import Arrived, ObservedChannel
from trio_mcp.session import MessageChannel
from trio_mcp.types import ElicitRequestFormParams, ElicitResult, LoggingMessageNotificationParams, Root

LIMIT = 20.0
FIRST_WITH_CHOICES = "2025-11-25"
"""Of several values, in a form."""

Message = dict[str, Any]
Traffic = list[tuple[str, Message]]
"""Who sent a message, and the message as JSON, in the order in which the server saw them."""


class Recorded:
    """Our server, with a copy of every message of its connections; connect to it as to the server itself."""

    def __init__(self) -> None:
        self.traffic: Traffic = []

    async def serve_channel(self, channel: MessageChannel) -> None:
        await server.serve_channel(ObservedChannel(channel, self._note))

    def _note(self, side: str, message: Arrived) -> None:
        # The observed channel is the server's: what it calls the side of the client is its own side.
        self.traffic.append(("server" if side == "client" else "client", json_of(message)))


class User:
    """Fills in forms, says no to the first, and needs two attempts for the second."""

    def __init__(self) -> None:
        self._asked = 0

    def answer(self, question: ElicitRequestFormParams) -> ElicitResult:
        self._asked += 1
        if self._asked == 1:
            return decline()
        if "traveller" in question.requested_schema.properties:
            # a whole number: in the schema files, unlike in schema.ts, an answer has no fractions
            return accept(traveller="Ada", nights=3, budget=2, breakfast=False, seat="window", extras=["bag"])
        return accept(value="not a number" if self._asked == 2 else 7)


async def converse(version: str) -> Traffic:
    """A client of this revision does everything it can with the server of these tests."""
    recorded = Recorded()
    heard: list[LoggingMessageNotificationParams] = []
    async with Client.connect(
        recorded,
        mode=version,
        on_elicit=User().answer,
        on_sample=lambda _params: "So be it.",
        on_roots=lambda: [Root(uri="file:///home/ada", name="home")],
        on_log=heard.append,
        log_level="debug",
    ) as client:
        assert client.protocol_version == version
        await client.ping()
        await client.list_tools()
        await call_what_returns(client)
        await call_what_tells(client)
        if version >= FIRST_WITH_FORMS:
            await call_what_asks(client)
        assert len(heard) == 3
    async with Client.connect(recorded, mode=version) as deaf:
        if version == MODERN:
            with pytest.raises(PeerError):
                await deaf.call_tool("plan_trip")
        else:
            assert (await deaf.call_tool("plan_trip")).is_error
    return recorded.traffic


async def call_what_returns(client: Client) -> None:
    for name in ("place", "picture", "link", "several", "whole", "nothing", "crash"):
        await client.call_tool(name)
    await client.call_tool("text", {"value": "hello"})
    await client.call_tool("number", {"a": 1, "b": 2})
    await client.call_tool("number", {"a": "one"})
    await client.call_tool("refuse", {"why": "no seat"})
    with pytest.raises(PeerError):
        await client.call_tool("nowhere")


async def call_what_tells(client: Client) -> None:
    await client.call_tool("talk")
    await client.call_tool("count", {"n": 3}, on_progress=lambda _report: None)
    await client.call_tool("text", {"value": "more meta"}, meta={"example.com/trace": {"id": 1}})
    with trio.CancelScope() as scope:
        await client.call_tool("hold", on_progress=lambda _report: scope.cancel())
    await client.call_tool("ended")


async def call_what_asks(client: Client) -> None:
    assert (await client.call_tool("add_up")).structured_content == {"result": 14}
    assert (await client.call_tool("think", {"about": "rain"})).text == "unnamed: So be it."
    assert (await client.call_tool("folders")).structured_content == {"result": ["home=file:///home/ada"]}
    trip = await client.call_tool("plan_trip")
    if client.protocol_version >= FIRST_WITH_CHOICES:
        assert trip.text == "Ada 3 2.0 False window bag"
    else:
        assert trip.is_error


# what a message is


def checks(spec_dir: Path, version: str, traffic: Traffic) -> Iterator[tuple[str, Message, Message]]:
    """For each message: the name of its definition, the part that the definition describes, and the whole message."""
    methods = request_definitions(spec_dir, version)
    asked: dict[tuple[str, object], str] = {}
    for sender, message in traffic:
        if message.get("method") == "initialize":
            asked.clear()
        match message:
            case {"method": str(method), "id": request_id}:
                asked[sender, request_id] = method
                yield methods[method], body(version, message), message
            case {"method": str(method)}:
                name = "CancelledNotification" if method == "notifications/cancelled" else methods[method]
                yield name, body(version, message), message
            case {"result": result, "id": request_id}:
                method = asked["server" if sender == "client" else "client", request_id]
                yield result_definition(spec_dir, version, methods[method], result), result, message
            case {"error": {"code": code} as error}:
                name = error_definition(version, code)
                whole = "error" in definitions(spec_dir, version)[name]["properties"]
                yield name, message if whole else error, message


def body(version: str, message: Message) -> Message:
    """Return the part that its definition describes: before 2025-11-25 a general one describes the envelope."""
    envelope = () if version >= "2025-11-25" else ("jsonrpc", "id")
    return {name: value for name, value in message.items() if name not in envelope}


ERRORS = {-32602: "InvalidParamsError", -32021: "MissingRequiredClientCapabilityError"}


def error_definition(version: str, code: int) -> str:
    if version < "2025-11-25":
        return "JSONRPCError"
    return ERRORS[code] if version == MODERN else "JSONRPCErrorResponse"


def input_requests(traffic: Traffic) -> list[Message]:
    """The questions inside interim results."""
    results = [message.get("result", {}) for _, message in traffic]
    return [question for result in results for question in result.get("inputRequests", {}).values()]


# the rules


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_every_message_is_valid_in_its_revision(spec_dir: Path, version: str) -> None:
    with trio.fail_after(LIMIT):
        traffic = await converse(version)
    seen = set()
    for name, part, message in checks(spec_dir, version, traffic):
        validator(spec_dir, version, general_definition(version, message)).validate(message)
        validator(spec_dir, version, name).validate(part)
        if name != "EmptyResult" and "error" not in message:
            closed_validator(spec_dir, version, name).validate(part)
        seen.add(name)
    assert seen >= EXPECTED[version]
    for question in input_requests(traffic):
        name = request_definitions(spec_dir, version)[question["method"]]
        closed_validator(spec_dir, version, name).validate(question)
    assert bool(input_requests(traffic)) == (version == MODERN)


TOLD = {"LoggingMessageNotification", "ProgressNotification", "CancelledNotification"}
BOTH_ERAS = {"ListToolsRequest", "CallToolRequest", *TOLD}
LEGACY = BOTH_ERAS | {"InitializeRequest", "InitializedNotification", "PingRequest", "SetLevelRequest"}
ASKED = {"CreateMessageRequest", "ElicitRequest", "ListRootsRequest"}
EXPECTED = {
    "2024-11-05": LEGACY | {"JSONRPCError"},
    "2025-03-26": LEGACY | {"JSONRPCError"},
    "2025-06-18": LEGACY | ASKED | {"JSONRPCError"},
    "2025-11-25": LEGACY | ASKED | {"JSONRPCErrorResponse"},
    MODERN: BOTH_ERAS | {"DiscoverRequest", "InvalidParamsError", "MissingRequiredClientCapabilityError"},
}
"""What the conversation has to contain, with the results of its requests, lest these tests check nothing."""
