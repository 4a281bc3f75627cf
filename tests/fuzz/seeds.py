"""The messages that mutations start from: conversations with the fuzzed server, and the specification's examples.

The examples are those of `tests/samples.py` in every revision, and the files of the specification where they are at hand. A
value like `"@state@"` stands for something that the peer said last; see `filled_in`.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from peer import EVERYTHING, Json, hello, modern_meta
from samples import NOTIFICATIONS, PARAMS, REQUEST_META, RESULTS
from spec_schemas import SPEC_DIR, VERSIONS
from wire_terms import LOG_LEVEL, MODERN, NEWEST_LEGACY, SUBSCRIPTION_ID

from trio_mcp.protocol.codec import codec_for
from trio_mcp.protocol.revisions import REVISIONS

METHODS = sorted({name for revision in REVISIONS.values() for name in (*revision.requests, *revision.notifications)})
LEGACY_VERSIONS = tuple(version for version in VERSIONS if version != MODERN)

ACCEPTED: Json = {"action": "accept", "content": {"value": 7, "name": "a"}}
SAMPLED: Json = {"role": "assistant", "content": {"type": "text", "text": "so be it"}, "model": "m"}

TOOL_CALLS: list[Json] = [
    {"name": "echo", "arguments": {"text": "hello"}},
    {"name": "typed", "arguments": {"numbers": [1, 2, 3], "mode": "fast", "place": {"name": "a", "at": [1.5, 2]}}},
    {"name": "ask", "arguments": {}},
    {"name": "sample", "arguments": {}},
    {"name": "folders", "arguments": {}},
    {"name": "both", "arguments": {}},
    {"name": "report", "arguments": {}},
    {"name": "wait", "arguments": {}},
    {"name": "refuse", "arguments": {}},
    {"name": "no_such_tool", "arguments": {}},
]
REQUESTS: list[tuple[str, Json]] = [
    *(("tools/call", call) for call in TOOL_CALLS),
    ("tools/list", {}),
    ("tools/list", {"cursor": "c"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "greet", "arguments": {"who": "Ada"}}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "note:today"}),
    ("resources/read", {"uri": "page://a/b%20c?q=1"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "A"}},
    ),
    ("ping", {}),
]
LEGACY_REQUESTS: list[tuple[str, Json]] = [
    ("logging/setLevel", {"level": "debug"}),
    ("resources/subscribe", {"uri": "note:today"}),
    ("resources/unsubscribe", {"uri": "note:today"}),
]
FILTER: Json = {"toolsListChanged": True, "resourceSubscriptions": ["note:today"]}
MODERN_REQUESTS: list[tuple[str, Json]] = [
    ("server/discover", {}),
    ("subscriptions/listen", {"notifications": FILTER}),
    *(
        ("tools/call", {"name": name, "arguments": {}, "requestState": "@state@", "inputResponses": {"@key@": answer}})
        for name, answer in (("ask", ACCEPTED), ("sample", SAMPLED), ("both", ACCEPTED), ("ask", {"action": "decline"}))
    ),
]
NOTICES: list[Json] = [
    {"method": "notifications/initialized"},
    {"method": "notifications/cancelled", "params": {"requestId": 2, "reason": "r"}},
    {"method": "notifications/progress", "params": {"progressToken": "@token@", "progress": 1}},
    {"method": "notifications/roots/list_changed"},
]
ANSWERS: list[Json] = [
    {"id": "@question@", "result": ACCEPTED},
    {"id": "@question@", "result": SAMPLED},
    {"id": "@question@", "result": {"roots": [{"uri": "file:///a"}]}},
    {"id": "@question@", "error": {"code": -1, "message": "rejected", "data": {"a": 1}}},
    {"id": 77, "result": {}},
]


# What a server reports on the request that it belongs to.
REPORTS: list[Json] = [
    {"method": "notifications/progress", "params": {"progressToken": "@token@", "progress": 2, "total": 3}},
    {
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": FILTER, "_meta": {SUBSCRIPTION_ID: "@id@"}},
    },
    {"method": "notifications/tools/list_changed", "params": {"_meta": {SUBSCRIPTION_ID: "@id@"}}},
    {"method": "notifications/message", "params": {"level": "error", "data": [1], "_meta": {SUBSCRIPTION_ID: "@id@"}}},
    {"method": "notifications/cancelled", "params": {"requestId": "@id@", "reason": "r"}},
]


def handshake(version: str = NEWEST_LEGACY) -> Json:
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello(version, EVERYTHING)}


@cache
def to_a_server() -> tuple[Json, ...]:
    """What clients send."""
    meta = {"progressToken": 5, LOG_LEVEL: "debug"}
    legacy = [
        request(method, {**params, "_meta": {"progressToken": 5}}) for method, params in REQUESTS + LEGACY_REQUESTS
    ]
    modern = [
        request(method, {**params, "_meta": modern_meta(EVERYTHING, meta)})
        for method, params in REQUESTS + MODERN_REQUESTS
    ]
    hellos = [handshake(version) for version in LEGACY_VERSIONS]
    return tuple(jsonrpc(each) for each in legacy + modern + hellos + NOTICES + ANSWERS + sampled() + examples())


@cache
def to_a_client() -> tuple[Json, ...]:
    """What servers send without a request: notifications, questions, and answers to nothing."""
    return tuple(jsonrpc(each) for each in [*questions(), *REPORTS, *NOTICES, *ANSWERS, *sampled(), *examples()])


@cache
def results(version: str, method: str) -> tuple[Json, ...]:
    """The right results of a request; none if the revision has no such request."""
    known, codec = REVISIONS[version].requests.get(method), codec_for(version)
    if known is None:
        return ()
    found = [json.loads(codec.encode_result(method, each).raw) for each in RESULTS if type(each) is known.result]
    if version == MODERN and method == "tools/call":
        for question in questions():
            asked = {"k": {"method": question["method"], "params": question["params"]}}
            found.append({"resultType": "input_required", "inputRequests": asked, "requestState": "s"})
        found.append({"resultType": "input_required", "requestState": "s"})
    return tuple(found)


def request(method: str, params: Json, id: Any = 2) -> Json:
    return {"id": id, "method": method, "params": params}


def jsonrpc(message: Json) -> Json:
    return {"jsonrpc": "2.0", **message}


@cache
def questions() -> list[Json]:
    """The requests of a server."""
    revision, codec = REVISIONS[NEWEST_LEGACY], codec_for(NEWEST_LEGACY)
    asked = [("elicitation/create", each) for each in PARAMS if type(each).__name__.startswith("Elicit")]
    asked += [("sampling/createMessage", each) for each in PARAMS if type(each).__name__.startswith("CreateMessage")]
    found = [request(method, json.loads(codec.encode_request(method, params).raw), "q") for method, params in asked]
    assert {method for method, _ in asked} <= set(revision.requests)
    return [*found, request("roots/list", {}, "q"), request("ping", {}, "q")]


@cache
def sampled() -> list[Json]:
    """Every request and notification of every revision, filled in as richly as it can be."""
    found = []
    for version in VERSIONS:
        revision, codec = REVISIONS[version], codec_for(version)
        for method in revision.requests.values():
            for params in PARAMS:
                if type(params) in (method.params, *method.modes.values()):
                    full = params.model_copy(update={"meta": REQUEST_META}) if version == MODERN else params
                    found.append(request(method.name, json.loads(codec.encode_request(method.name, full).raw)))
        for notice in revision.notifications.values():
            found += [
                {"method": notice.name, "params": json.loads(codec.encode_notification(notice.name, params).raw)}
                for params in NOTIFICATIONS
                if type(params) is notice.params
            ]
    return found


@cache
def examples() -> list[Json]:
    """The specification's own examples of whole messages; none where its files are missing."""
    files = sorted((SPEC_DIR / MODERN / "examples").glob("*/*.json"))
    found = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return [each for each in found if "jsonrpc" in each]


def filled_in(data: bytes, said: Json) -> bytes:
    """Return a message with what the peer said in the places of `"@state@"` and the like."""
    for name, value in said.items():
        data = data.replace(b'"@%s@"' % name.encode(), json.dumps(value).encode())
    return data
