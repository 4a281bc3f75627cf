"""How long one message holds the event loop of a server: `python tests/bench/worst_messages.py [PART OF A NAME]`.

Each shape is as large as the limits allow: 4 MiB, or 100,000 values and names. A server reads a message in one step, in which it
also counts what the message takes of the memory budget, and validates it in the next, with a turn of the loop in between, so that
the larger of the two columns is what another client waits for. Both are CPU time of the thread, the least of several runs. The
last column is what the message was answered with.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parents[1]))
from peer import EVERYTHING, Json, arrived, json_of, modern_meta

from trio_mcp import Context, Server
from trio_mcp.session import ServerSession, Service

RUNS = 10
BYTES = 4 * 1024 * 1024 - 1024
VALUES = 99_900
MEMBERS = VALUES // 2
ROWS = VALUES // 3
"""Objects of one member: each is a value, and has a name and a value."""
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
META = json.dumps(modern_meta(EVERYTHING)).encode()

server = Server("worst")


class Row(BaseModel):
    a: int


@server.tool
async def anything(a: Any) -> str:
    return "done"


@server.tool
async def rows(a: list[Row]) -> str:
    return "done"


@server.tool
async def table(a: dict[str, int]) -> str:
    return "done"


@server.tool(
    input_schema={"type": "object", "properties": {"a": {"items": {"anyOf": [{"minimum": 2}, {"type": "string"}]}}}}
)
async def checked(arguments: dict[str, Any]) -> str:
    return "done"


@server.tool
async def asking(ctx: Context) -> str:
    return str(await ctx.elicit("How many?", int))


for number in range(20):
    server.add_resource("files:///" + "a/" * number + "{+path}", lambda path: path, name=f"files {number}")


def array(item: bytes, count: int = VALUES) -> bytes:
    return b"[" + b",".join([item] * min(count, BYTES // (len(item) + 1))) + b"]"


def members(value: bytes, count: int = MEMBERS, name: Callable[[int], int] = int) -> bytes:
    return b"{" + b",".join(b'"%d":%b' % (name(number), value) for number in range(count)) + b"}"


def text(unit: bytes) -> bytes:
    return b'"' + unit * (BYTES // len(unit)) + b'"'


def request(method: str, params: bytes, meta: bytes = META) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"%b","params":{%b,"_meta":%b}}' % (method.encode(), params, meta)


def call(tool: str, argument: bytes) -> bytes:
    return request("tools/call", b'"name":"%b","arguments":{"a":%b}' % (tool.encode(), argument))


def introduced(info: bytes) -> bytes:
    meta = json.dumps({key: value for key, value in modern_meta(EVERYTHING).items() if key != CLIENT_INFO}).encode()
    name = CLIENT_INFO.encode()
    return request("tools/call", b'"name":"anything","arguments":{"a":1}', b'%b,"%b":%b}' % (meta[:-1], name, info))


SHAPES: dict[str, bytes] = {
    "integers": call("anything", array(b"1")),
    "integers of 320 digits": call("anything", array(b"9" * 320)),
    "fractions": call("anything", array(b"1.5")),
    "fractions of 40 characters": call("anything", array(b"1." + b"7" * 34 + b"e-30")),
    "fractions of 40 characters and a list": call(
        "anything", array(b"1." + b"7" * 34 + b"e-30", VALUES - 2)[:-1] + b",[1]]"
    ),
    "one object of 50,000 members": call("anything", members(b"1")),
    "the same, of fractions": call("anything", members(b"1.5")),
    "the same, with one name twice": call("anything", members(b"1", name=lambda number: number % (MEMBERS - 1))),
    "objects of one member": call("anything", array(b'{"a":1}', ROWS)),
    "[[[]]]": call("anything", array(b"[[[]]]", VALUES // 3)),
    "objects nested 55 deep": call("anything", array(b'{"a":' * 55 + b"1" + b"}" * 55, VALUES // 111)),
    "texts of 17 escapes": call("anything", array(b'"' + b"\\n" * 17 + b'"')),
    "one text": call("anything", text(b"x")),
    "one text of escapes": call("anything", text(b"\\n")),
    "one text of surrogate pairs": call("anything", text(b"\\ud83d\\ude00")),
    "one text of brackets and escaped quotes": call("anything", text(b'\\"\\\\[,')),
    "a lone surrogate behind 33,000 objects": call("anything", array(b'{"a":1}', ROWS - 1)[:-1] + b',"\\ud800"]'),
    "2,000,000 values": call("anything", array(b"1", BYTES)),
    "2,000,000 brackets": call("anything", b"[" * (BYTES // 2)),
    "arguments as 33,000 models": call("rows", array(b'{"a":1}', ROWS)),
    "arguments as a dict of integers": call("table", members(b"1")),
    "arguments for a JSON Schema": call("checked", array(b"1")),
    "small arguments for a JSON Schema": call("checked", array(b"1", 1_900)),
    "unknown members of params": request("tools/call", b'"name":"anything","arguments":{},' + members(b"1")[1:-1]),
    "unknown members of _meta": request("ping", b'"a":1', META[:-1] + b"," + members(b"1")[1:]),
    "icons": introduced(b'{"name":"x","version":"1","icons":%b}' % array(b'{"src":"a:b"}', ROWS)),
    "5,000 icons": introduced(
        b'{"name":"x","version":"1","icons":%b}' % array(b'{"src":"a:b","sizes":["any"]}', 5_000)
    ),
    "answers to questions": request(
        "tools/call", b'"name":"asking","requestState":"x","inputResponses":' + members(b"{}")
    ),
    "a filter of one URI": request(
        "subscriptions/listen", b'"notifications":{"resourceSubscriptions":%b}' % array(b'"a:b"')
    ),
    "arguments of a completion": request(
        "completion/complete",
        b'"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"x","value":""},"context":{"arguments":%b}'
        % members(b'"a"'),
    ),
    "a URI for 20 templates": request("resources/read", b'"uri":"files:///' + b"a/" * 4_000 + b'.."'),
    "a batch": b"[" + b",".join([b'{"jsonrpc":"2.0","method":"ping","id":1}'] * 14_000) + b"]",
}


async def measure(service: Service, data: bytes) -> tuple[float, float, str]:
    """Return the seconds of parsing and of validating one message, and the beginning of the answer."""
    parsing = validating = float("inf")
    answer: Json = {}
    for _ in range(RUNS):
        session, outbox = ServerSession(service), service.open_outbox()
        began = time.thread_time()
        envelope = arrived(data)
        parsed = time.thread_time()
        session.receive(envelope, outbox)
        validating = min(validating, time.thread_time() - parsed)
        parsing = min(parsing, parsed - began)
        with trio.move_on_after(5):
            answer = json_of((await outbox.take())[0].message)
    if "error" in answer:
        return parsing, validating, answer["error"]["message"][:60]
    return parsing, validating, "a result" if "result" in answer else "a notification"


async def main(part: str) -> None:
    print("| message | MB | parse, ms | validate, ms | answer |\n|---|---|---|---|---|")
    async with server.open_service() as service:
        gc.freeze()
        gc.set_threshold(10_000)  # as a server does
        for name, data in SHAPES.items():
            if part in name:
                parsing, validating, answer = await measure(service, data)
                print(
                    f"| {name} | {len(data) / 1e6:.1f} | {parsing * 1e3:.1f} | {validating * 1e3:.1f} | {answer} |",
                    flush=True,
                )


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "")
