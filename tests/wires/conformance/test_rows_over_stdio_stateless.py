"""The rows of the scenario `server-stateless` over stdio: requests that say everything about themselves, and subscriptions.

What the suite says about status codes and headers has nothing to be about here. Every reply carries the id of its request:
the peer looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from driven import DrivenServer
from rows import MODERN, row
from talk import log_level, modern_meta

from trio_mcp import Client
from trio_mcp.client import Change
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, SERVER_INFO, SUBSCRIPTION_ID
from trio_mcp.types import LoggingLevel

Json = dict[str, Any]

REMOVED = ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
"""What the handshake era had, and this one has not."""

UNKNOWN = "v999.0.0"


# what a request says about itself


@row("server-stateless", MODERN)
async def test_a_request_that_does_not_say_what_its_client_can_do_is_refused(server: DrivenServer) -> None:
    peer = await server.peer()
    meta = {PROTOCOL_VERSION: MODERN, CLIENT_INFO: {"name": "tester", "version": "1"}}
    for method in ("server/discover", "tools/list"):
        reply = await peer.request(method, {"_meta": meta})
        assert reply["error"]["code"] == -32602
        assert CLIENT_CAPABILITIES in reply["error"]["message"]


@row("server-stateless", MODERN)
async def test_a_request_that_only_this_era_has_is_refused_for_what_its_meta_lacks(server: DrivenServer) -> None:
    """Without a version in it a request may be one of the handshake era; not one that this era alone knows (M-META-1s)."""
    peer = await server.peer()
    for params in (None, {}, {"_meta": {CLIENT_CAPABILITIES: {}}}):
        error = (await peer.request("server/discover", params))["error"]
        assert error["code"] == -32602, error
        assert PROTOCOL_VERSION in error["message"]


@row("server-stateless", MODERN)
async def test_a_request_need_not_say_who_its_client_is(server: DrivenServer) -> None:
    peer = await server.peer()
    meta = {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}}
    assert "result" in await peer.request("server/discover", {"_meta": meta})
    assert "result" in await peer.request("tools/list", {"_meta": meta})


@row("server-stateless", MODERN)
async def test_an_unknown_version_is_refused_with_those_that_are_known(server: DrivenServer) -> None:
    peer = await server.peer()
    known = (await peer.result("server/discover"))["supportedVersions"]
    meta = {PROTOCOL_VERSION: UNKNOWN, CLIENT_CAPABILITIES: {}}
    error = (await peer.request("server/discover", {"_meta": meta}))["error"]
    assert error["code"] == -32022
    assert error["data"]["requested"] == UNKNOWN
    assert MODERN in error["data"]["supported"]
    assert set(error["data"]["supported"]) <= set(known)


@row("server-stateless", MODERN)
async def test_a_tool_that_needs_what_the_client_has_not_declared_is_refused(server: DrivenServer) -> None:
    peer = await server.peer()
    reply = await peer.ask("tools/call", {}, name="test_missing_capability", arguments={})
    assert reply["error"]["code"] == -32021
    assert reply["error"]["data"]["requiredCapabilities"] == {"sampling": {}}


# what the server says about itself


@row("server-stateless", MODERN)
async def test_a_server_says_what_it_is_before_anything_else(server: DrivenServer) -> None:
    client = await server.client()
    await client.ping()
    found = server.wire.result("server/discover")
    assert MODERN in found["supportedVersions"]
    assert found["resultType"] == "complete"
    assert "serverInfo" not in found
    assert found["_meta"][SERVER_INFO]["name"] == "everything"
    assert found["_meta"][SERVER_INFO]["version"] == "1.0"


@row("server-stateless", MODERN)
async def test_a_server_does_what_it_says_it_can(server: DrivenServer) -> None:
    client = await server.client()
    peer = await server.peer()
    offered = (await peer.result("server/discover"))["capabilities"]
    assert {"tools", "prompts", "resources", "completions", "logging"} <= offered.keys()
    assert offered["tools"]["listChanged"] is offered["prompts"]["listChanged"] is True
    assert client.server_capabilities.tools is not None
    assert (await peer.result("tools/list"))["tools"]
    assert (await peer.result("prompts/list"))["prompts"]
    assert (await peer.result("resources/list"))["resources"]


@row("server-stateless", MODERN)
async def test_what_the_handshake_era_had_is_not_found(server: DrivenServer) -> None:
    peer = await server.peer()
    for method in (*REMOVED, "unknown/method"):
        assert (await peer.ask(method))["error"]["code"] == -32601, method


# what a call may say


@row("server-stateless", MODERN)
async def test_a_call_sends_no_request_of_its_own(server: DrivenServer) -> None:
    peer = await server.peer()
    meta = {**modern_meta({"elicitation": {}}), "progressToken": "streaming"}
    params = {"name": "test_streaming_elicitation", "arguments": {}, "_meta": meta}
    result = (await peer.request("tools/call", params))["result"]
    assert result["resultType"] == "input_required"
    assert [question["method"] for question in result["inputRequests"].values()] == ["elicitation/create"]
    assert [message["method"] for message in peer.wire.messages if "method" in message] == ["notifications/progress"]


@row("server-stateless", MODERN)
async def test_a_request_that_asks_for_no_log_gets_none(server: DrivenServer) -> None:
    peer = await server.peer()
    await peer.call("test_logging_tool", {})
    await peer.result("server/discover")
    assert peer.wire.heard("notifications/message") == []


@row("server-stateless", MODERN)
async def test_a_request_gets_the_log_that_it_asks_for(server: DrivenServer) -> None:
    peer = await server.peer()
    meta = {**modern_meta(), **log_level("error")}
    await peer.request("tools/call", {"name": "test_logging_tool", "arguments": {}, "_meta": meta})
    levels = get_args(LoggingLevel)
    heard = [message["params"]["level"] for message in peer.wire.heard("notifications/message")]
    assert heard == list(levels[levels.index("error") :])


# subscriptions


@row("server-stateless", MODERN)
async def test_a_subscription_is_acknowledged_before_anything_else_and_marks_what_it_tells(
    server: DrivenServer,
) -> None:
    client = await server.client()
    async with client.listen(tools=True) as changes:
        assert changes.honoured.tools_list_changed
        await client.call_tool("test_trigger_tool_change")
        assert await anext(changes) == Change("tools")
    (listen,) = server.wire.sent("subscriptions/listen")
    told = told_to(server, listen)
    assert [message["method"] for message in told] == [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    ]
    assert told[0]["params"]["notifications"] == {"toolsListChanged": True}
    assert told == [message for message in server.wire.messages if "method" in message], "each of them is marked"


@row("server-stateless", MODERN)
async def test_a_subscriber_to_prompts_hears_of_prompts_alone(server: DrivenServer) -> None:
    client = await server.client()
    async with client.listen(prompts=True) as changes:
        await client.call_tool("test_trigger_tool_change")
        await client.call_tool("test_trigger_prompt_change")
        assert await anext(changes) == Change("prompts")
        await client.ping()
    assert heard_of(server) == ["notifications/prompts/list_changed"]


@row("server-stateless", MODERN)
async def test_the_list_is_another_after_the_change_that_was_told(server: DrivenServer) -> None:
    client = await server.client()
    before = await dynamic(client)
    async with client.listen(tools=True, prompts=True) as changes:
        await client.call_tool("test_trigger_tool_change")
        assert await anext(changes) == Change("tools")
        await client.call_tool("test_trigger_prompt_change")
        assert await anext(changes) == Change("prompts")
    after = await dynamic(client)
    assert [was != now for was, now in zip(before, after, strict=True)] == [True, True]


@row("server-stateless", MODERN)
async def test_nobody_who_has_not_subscribed_hears_of_a_change(server: DrivenServer) -> None:
    peer = await server.peer()
    await peer.call("test_trigger_tool_change")
    await peer.call("test_trigger_prompt_change")
    await peer.result("server/discover")
    assert [message for message in peer.wire.messages if "method" in message] == []


async def dynamic(client: Client) -> Sequence[bool]:
    """Whether the tool and the prompt that come and go are there."""
    tools = {tool.name for tool in await client.list_tools()}
    prompts = {prompt.name for prompt in await client.list_prompts()}
    return "test_dynamic_tool" in tools, "test_dynamic_prompt" in prompts


def told_to(server: DrivenServer, listen: Json) -> list[Json]:
    """The notifications that carry the id of a subscription."""
    notifications = [message for message in server.wire.messages if "method" in message]
    return [each for each in notifications if each["params"]["_meta"].get(SUBSCRIPTION_ID) == listen["id"]]


def heard_of(server: DrivenServer) -> list[str]:
    """The changes that the server told of."""
    return [message["method"] for message in server.wire.messages if "list_changed" in message.get("method", "")]
