"""Inputs that broke a rule once, and some that are likely to. They always run.

The report of a failing case has a line in this form. Paste it here with a name that says what it broke.
"""

from __future__ import annotations

from against_client import ClientCase, Reply
from against_server import ServerCase
from wires import Step

HELLO = Step(
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{"elicitation":{},"sampling":{}},"clientInfo":{"name":"tester","version":"1"}}}'
)
OPEN = Step(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
ASK = Step(b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask","arguments":{}}}')
HALF = Step(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9,"reason":"\\ud800"}}')
MODERN_META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}'
)
MODERN_LIST = b'{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{' + MODERN_META

REGRESSIONS: dict[str, ServerCase | ClientCase] = {
    "a question that the agreed revision does not have": ServerCase(
        "memory", (Step(HELLO.data.replace(b"2025-11-25", b"2024-11-05")), OPEN, ASK)
    ),
    "an error instead of an answer": ServerCase(
        "websocket",
        (HELLO, OPEN, ASK, Step(b'{"jsonrpc":"2.0","id":"@question@","error":{"code":-1,"message":"User rejected"}}')),
    ),
    "client info with many wrong icons": ServerCase(
        "memory",
        (Step(MODERN_LIST + b',"io.modelcontextprotocol/clientInfo":{"icons":[' + b"{}," * 50_000 + b"{}]}}}}"), HELLO),
    ),
    "a deep unknown member of _meta": ServerCase(
        "websocket", (Step(MODERN_LIST + b',"x":' + b"[" * 60 + b"]" * 60 + b"}}}"),)
    ),
    "an answer with many wrong items": ClientCase(
        "http",
        "modern",
        ("list_tools",),
        (Reply(), Reply((b'{"jsonrpc":"2.0","id":"@id@","result":{"tools":[' + b"{}," * 50_000 + b"{}]}}",), -1)),
    ),
    "an answer to a question, twice and to another question": ServerCase(
        "lines",
        (
            *(HELLO, OPEN, ASK),
            Step(b'{"jsonrpc":"2.0","id":"@question@","result":{"action":"accept","content":{"value":"seven"}}}'),
            Step(b'{"jsonrpc":"2.0","id":"@question@","result":{"action":"decline"}}'),
            Step(b'{"jsonrpc":"2.0","id":99,"result":{"action":"decline"}}'),
        ),
    ),
    "halves of characters on one connection": ServerCase("memory", (HELLO, OPEN, *[HALF] * 6)),
}
