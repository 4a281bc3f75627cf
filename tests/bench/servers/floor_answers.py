"""The answers of the floors: hard-coded, and nothing is checked."""

from __future__ import annotations

import os
from typing import Any

import orjson

Json = dict[str, Any]

OPENED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "floor", "version": "0"},
}
QUESTION = {
    "mode": "form",
    "message": "Which value?",
    "requestedSchema": {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]},
}
ASK = {
    "resultType": "input_required",
    "requestState": "asked",
    "inputRequests": {"value": {"method": "elicitation/create", "params": QUESTION}},
}
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"title": "Text", "type": "string"},
        "count": {"default": 1, "title": "Count", "type": "integer"},
        "flag": {"default": False, "title": "Flag", "type": "boolean"},
    },
    "required": ["text"],
}
TOOLS = [
    {
        "name": f"extra_{number}",
        "description": f"Extra tool number {number}, here to make tools/list long.",
        "inputSchema": SCHEMA,
    }
    for number in range(int(os.environ.get("BENCH_TOOLS", "0")))
]


def text_result(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


def called(params: Json) -> Json:
    """Return the result of a call."""
    if params["name"] == "echo":
        text = params["arguments"]["text"]
        return {"content": [{"type": "text", "text": text}], "structuredContent": {"result": text}, "isError": False}
    if answers := params.get("inputResponses"):
        return text_result(f"got {answers['value']['content']['value']}")
    return ASK


def answer(message: Json) -> Json:
    """Return the response to a request."""
    method = message["method"]
    if method == "tools/call":
        result = called(message["params"])
    elif method == "initialize":
        result = OPENED
    elif method == "tools/list":
        result = {"tools": TOOLS}
    else:
        result = {}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def event(message: Json) -> bytes:
    """Return a message as an event of a stream."""
    return b"event: message\r\ndata: %s\r\n\r\n" % orjson.dumps(message)
