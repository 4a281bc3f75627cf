"""What type checkers see of groups of clients, of the options of a client, and of tools for the APIs of models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import assert_type

from anthropic import AsyncAnthropic
from anthropic.types import MessageParam
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from trio_mcp import Client, ClientGroup, GroupServer, ServerState, ServerStatus, list_model_tools
from trio_mcp.client import Change, ConnectKeywords
from trio_mcp.compose import AgentCall, CommandServer, HostServer, UrlServer, read_mcp_json
from trio_mcp.session import ChannelServer
from trio_mcp.types import CallToolResult, LoggingMessageNotificationParams, ProgressNotificationParams, Tool


def log(server: str, message: LoggingMessageNotificationParams) -> None: ...


def options_for(server: str) -> ConnectKeywords:
    return {"on_log": partial(log, server), "headers": {"a": "b"}}


def is_harmless(tool: Tool) -> bool:
    return tool.name == "read"


def on_state(state: ServerState) -> None:
    assert_type(state.status, ServerStatus)
    assert_type(state.error, Exception | None)


def on_change(change: Change) -> None: ...


def make(server: ChannelServer) -> list[ClientGroup]:
    servers: dict[str, str | Sequence[str] | ChannelServer | GroupServer | HostServer] = {
        "url": "https://example.org/mcp",
        "command": ["python", "server.py"],
        "server": server,
        "more": GroupServer("wss://example.org", only=["read"], options={"ping_interval": 5}),
        **read_mcp_json("mcp.json").servers,
    }
    return [
        ClientGroup(servers, only=is_harmless, for_server=options_for, on_state=on_state, on_change=on_change),
        ClientGroup.from_file("mcp.json", variables={"A": "b"}, without=["x_*"], log_level="debug"),
    ]


def connect() -> list[Client]:
    return [
        Client.connect("https://example.org/mcp", headers={"a": "b"}, connect_timeout=3),
        Client.connect(["run"], env={"A": "b"}, cwd="/", shutdown_grace=1),
    ]


async def use(group: ClientGroup) -> None:
    assert_type(await group.list_tools(), list[Tool])
    assert_type(await group.call_tool("a_b", {"x": 1}, timeout=3), CallToolResult)
    assert_type(await group.call_tool("a_b", returns=list[int]), list[int])
    assert_type(group["a"], Client)
    assert_type(group.states["a"], ServerState)
    for server in read_mcp_json("mcp.json").servers.values():
        if isinstance(server, CommandServer):
            assert_type(server.command, tuple[str, ...])
        else:
            assert_type(server, UrlServer)


def approve(call: AgentCall) -> bool:
    return call.server == "a"


def show(call: AgentCall, report: ProgressNotificationParams) -> None: ...


async def loops(claude: AsyncAnthropic, gpt: AsyncOpenAI, group: ClientGroup, client: Client) -> None:
    tools = await list_model_tools([group, client], approve=approve, on_progress=show, only=is_harmless)
    messages: list[MessageParam] = []
    answer = await claude.messages.create(model="m", max_tokens=1, messages=messages, tools=tools.to_anthropic())
    messages += await tools.run_anthropic(answer)
    said: list[ChatCompletionMessageParam] = []
    completion = await gpt.chat.completions.create(model="m", messages=said, tools=tools.to_openai())
    said += await tools.run_openai(completion.choices[0].message)
