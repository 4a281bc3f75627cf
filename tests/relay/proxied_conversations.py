"""Conversations between hosts and a server through proxies: topics, each between hosts and servers of both eras.

The hosts are on pipes, HTTP and WebSockets, with one proxy or three in front of the server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import trio
import trio.testing
from conversing import SECONDS, HttpTalk, Talk
from far_wire import FarWire
from relaying import HELLO, Json
from wire_terms import LOG_LEVEL, NEWEST_LEGACY

ANSWERS: Final[dict[str, Json]] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Bob"}, "x-answer": 1},
    "sampling/createMessage": {**HELLO, "x-answer": 1},
    "roots/list": {"roots": [{"uri": "file:///x", "name": "x", "x": 1}], "x-answer": 1},
    "x/ask": {"x": [1.5, None]},
}
"""What a host answers to a question, by its method."""
DECLINES: Final[dict[str, Json]] = {**ANSWERS, "elicitation/create": {"action": "decline"}}


# topics: what a host does


Topic = Callable[[Talk, FarWire], Awaitable[None]]


async def opening(_talk: Talk, _far: FarWire) -> None:
    """Only the handshake, or the discovery."""


async def listing(method: str, talk: Talk, _far: FarWire) -> None:
    await talk.request(method)
    await talk.request(method, {"cursor": "c", "x-unknown": {"a": [1.5]}})


async def calling(name: str, arguments: Json, more: Json, talk: Talk, _far: FarWire) -> None:
    await talk.call(name, arguments, **more)


async def asking(method: str, params: Json | None, talk: Talk, _far: FarWire) -> None:
    await talk.request(method, params)


async def reporting(token: object, talk: Talk, _far: FarWire) -> None:
    await talk.call("progress", {"count": 3}, _meta={"progressToken": token, "x/own": 1})


async def logging_at(level: str, talk: Talk, _far: FarWire) -> None:
    meta: Json = {"_meta": {LOG_LEVEL: level}} if talk.era == "modern" else {}
    if talk.era == "legacy":
        await talk.request("logging/setLevel", {"level": level})
    await talk.call("log", {"levels": ["debug", "info", "error"]}, **meta)


async def cancelling(talk: Talk, far: FarWire) -> None:
    message = talk.message("tools/call", {"name": "hold", "arguments": {}})
    await talk.send(message)
    with trio.fail_after(SECONDS):
        await far.holds.wait()
        if isinstance(talk, HttpTalk) and talk.era == "modern":
            await talk.cancel(message["id"])
        else:
            await talk.notify("notifications/cancelled", {"requestId": message["id"], "reason": "bored"})
        await far.cancelled.wait()
    await talk.call("after")


async def calling_unknown(talk: Talk, _far: FarWire) -> None:
    """A notification that no revision has, which the server answers with another one."""
    await talk.notify("notifications/x-call", {"a": {"b": [1.5, None]}, "_meta": {"m": 1}})
    await talk.heard_of("x-echo")


async def changing(kinds: Sequence[str], talk: Talk, _far: FarWire) -> None:
    listening = None
    if talk.era == "modern":
        wanted: Json = {f"{kind}ListChanged": True for kind in kinds if kind != "updated"}
        wanted |= {"resourceSubscriptions": ["note://one"]} if "updated" in kinds else {}
        listening = talk.message("subscriptions/listen", {"notifications": wanted})
        await talk.send(listening)
        await talk.heard_of("acknowledged")
    elif "updated" in kinds:
        await talk.request("resources/subscribe", {"uri": "note://one"})
    await talk.call("change", {"kinds": list(kinds)})
    for kind in kinds:
        await talk.heard_of("resources/updated" if kind == "updated" else f"{kind}/list_changed")
    if listening is not None and not isinstance(talk, HttpTalk):
        await talk.notify("notifications/cancelled", {"requestId": listening["id"]})
        # A request of before and one of after are not in any order.
        await trio.testing.wait_all_tasks_blocked(0.002)
    elif listening is None and "updated" in kinds:
        await talk.request("resources/unsubscribe", {"uri": "note://one"})
    await talk.call("after")


async def working(ends: str, talk: Talk, _far: FarWire) -> None:
    """A tool that runs as a task."""
    begun = (await talk.call("job", {"a": 1}, **({"task": {"ttl": 1000}} if talk.era == "legacy" else {})))["result"]
    task_id = {"taskId": begun.get("taskId") or begun["task"]["taskId"]}
    await talk.request("tasks/get", task_id)
    if ends == "cancelled":
        await talk.request("tasks/cancel", task_id)
    elif talk.era == "legacy":
        await talk.request("tasks/result", task_id)
        await talk.request("tasks/list", {})
    await talk.request("tasks/get", {"taskId": "none"})


async def batching(talk: Talk, _far: FarWire) -> None:
    messages = [
        talk.message("tools/call", {"name": "first", "arguments": {}}),
        {"jsonrpc": "2.0", "method": "notifications/x-own", "params": {"a": 1}},
        talk.message("ping"),
    ]
    await talk.send(messages)
    for message in messages:
        if "id" in message:
            await talk.reply(message["id"])


async def several(talk: Talk, _far: FarWire) -> None:
    """One after the other, as a model does it."""
    await talk.request("tools/list")
    for number in range(3):
        await talk.call(f"call{number}", {"number": number}, _meta={"progressToken": number})
    await talk.call("error_data")
    await talk.call("form")
    await talk.call("log", {"levels": ["warning"]})
    await talk.call("last")


ARGUMENTS: Final[dict[str, Json]] = {
    "none": {},
    "nested": {"a": {"b": [1, 2.5, None, True, {"c": []}]}, "": 0},
    "text": {"text": 'é 漢 \u2028 " \\ \n', "x" * 50: "y" * 150},
    "numbers": {"big": 2**53, "small": -1.5e-7, "one": 1.0, "zero": 0, "negative": -(2**31)},
}
CALLS: Final = [
    *("image", "audio", "link", "embedded", "structured", "failed", "odd", "empty"),
    *("error_bare", "error_data", "error_null", "error_text", "error_list", "error_unknown", "error_resource"),
]
QUESTIONS: Final = ["form", "form_of_a_mode", "url", "sample", "sample_tools", "roots", "form_and_sample", "two_forms"]


def topics(host: str) -> Iterator[tuple[str, Topic]]:
    """Yield the topics of a host of this era."""
    yield "opening", opening
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
        yield method, partial(listing, method)
    for name, arguments in ARGUMENTS.items():
        yield (
            f"arguments {name}",
            partial(calling, "echo", arguments, {"x-own": {"a": [1.5]}, "_meta": {"x/y": {"z": 1}}}),
        )
    for name in CALLS:
        yield name, partial(calling, name, {}, {})
    for name in QUESTIONS:
        yield f"asks {name}", partial(calling, name, {"a": 1}, {})
    if host == "legacy":
        yield "asks what no revision has", partial(calling, "ask_unknown", {}, {})
        yield "ping", partial(asking, "ping", None)
    for uri in ("note://one", "note://blob", "note://none"):
        yield f"reads {uri}", partial(asking, "resources/read", {"uri": uri, "x-own": 1})
    yield "prompt", partial(asking, "prompts/get", {"name": "greet", "arguments": {"who": "Bob"}, "x-own": 1})
    completed = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "B"}}
    yield "completion", partial(asking, "completion/complete", {**completed, "x-own": 1})
    for name, params in (("with params", {"a": [1.5, None]}), ("with empty ones", {}), ("without", None)):
        yield f"unknown request {name}", partial(asking, "x/echo", params)
    yield "unknown request that fails", partial(asking, "x/fail", {"a": 1})
    yield "unknown request that the server does not know", partial(asking, "x/none", {})
    for token in ("t", 7):
        yield f"progress {token!r}", partial(reporting, token)
    for level in ("debug", "warning"):
        yield f"log {level}", partial(logging_at, level)
    yield "cancel", cancelling
    yield "notification that no revision has", partial(calling, "note", {}, {})
    if host == "legacy":
        yield "notification of the host that no revision has", calling_unknown
    for kinds in (["tools"], ["prompts", "resources"], ["updated"]):
        yield f"changes of {' and '.join(kinds)}", partial(changing, kinds)
    for size in (50_000, 1_000_000):
        yield f"large result {size}", partial(calling, "large", {"size": size}, {})
    yield "large arguments", partial(calling, "echo", {"text": "é" * 100_000}, {})
    for ends in ("completed", "cancelled"):
        yield f"task {ends}", partial(working, ends)
    yield "several", several


# all conversations


class Conversation(NamedTuple):
    """One conversation.

    Attributes:
        topic: what its host does.
        host, server: the eras of both sides.
        wire: what the host is connected by.
        hops: how many proxies are in between.
        backfill: what the last of them answers for a host that cannot: "nothing", "samples" or "forms".
        version: the revision that a legacy host proposes.
        answers: what the host answers.
    """

    name: str
    topic: Topic
    host: str
    server: str
    wire: str = "pipe"
    hops: int = 1
    backfill: str = "nothing"
    version: str = NEWEST_LEGACY
    answers: Mapping[str, Json] = ANSWERS

    @property
    def title(self) -> str:
        more = [self.backfill] * (self.backfill != "nothing") + [self.version] * (self.version != NEWEST_LEGACY)
        hops = "" if self.hops == 1 else f" x{self.hops}"
        return " | ".join([self.name, f"{self.host} to {self.server}", f"{self.wire}{hops}", *more])


OVER_TWO_ERAS: Final = frozenset(
    [
        "opening",
        "tools/list",
        "resources/list",
        "arguments nested",
        "odd",
        "error_data",
        "asks form",
        "asks sample",
        "asks roots",
        "asks url",
        "reads note://one",
        "reads note://none",
        "prompt",
        "completion",
        "progress 't'",
        "log warning",
        "cancel",
        "changes of tools",
        "changes of updated",
        "large result 50000",
        "several",
        "unknown request with params",
        "unknown request without",
        "unknown request that fails",
        "unknown request that the server does not know",
        "notification that no revision has",
        "notification of the host that no revision has",
    ]
)
IN_A_ROW: Final = OVER_TWO_ERAS | {"asks what no revision has", "task completed"}
ON_A_SOCKET: Final = frozenset(
    [
        "opening",
        "tools/list",
        "arguments text",
        "odd",
        "error_null",
        "asks form",
        "asks sample_tools",
        "cancel",
        "unknown request with params",
        "log debug",
        "changes of tools",
        "large result 1000000",
        "progress 7",
        "several",
        "task completed",
        "notification that no revision has",
    ]
)
OLDER: Final = frozenset(
    ["opening", "tools/list", "structured", "odd", "asks form", "asks sample", "several", "progress 7"]
)


def conversations() -> Iterator[Conversation]:
    """Yield all of them."""
    for era in ("legacy", "modern"):
        other = "modern" if era == "legacy" else "legacy"
        for name, topic in topics(era):
            yield Conversation(name, topic, era, era)
            yield Conversation(name, topic, era, era, "http")
            if name in ON_A_SOCKET:
                yield Conversation(name, topic, era, era, "websocket")
            if name in IN_A_ROW:
                yield Conversation(name, topic, era, era, hops=3)
            if name in OVER_TWO_ERAS:
                yield Conversation(name, topic, era, other)
        for name in ("sample", "sample_tools", "form_and_sample", "form", "url"):
            topic = partial(calling, name, {}, {})
            for backfill in ("samples", "forms"):
                yield Conversation(f"asks {name}", topic, era, era, backfill=backfill)
            yield Conversation(f"asks {name}", topic, era, era, "http", backfill="samples")
        for name in ("form", "url"):
            declined = Conversation(f"declines {name}", partial(calling, name, {}, {}), era, era, answers=DECLINES)
            yield from (declined, declined._replace(wire="http"))
    for version in ("2024-11-05", "2025-03-26", "2025-06-18"):
        for name, topic in topics("legacy"):
            if name in OLDER:
                yield Conversation(name, topic, "legacy", "legacy", version=version)
    for wire in ("pipe", "websocket"):
        yield Conversation("batch", batching, "legacy", "legacy", wire, version="2025-03-26")
