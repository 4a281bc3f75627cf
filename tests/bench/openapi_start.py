"""How long `from_openapi` takes to make the tools of a large document: `python tests/bench/openapi_start.py [OPERATIONS]`.

The document has four operations for each of 70 kinds of things, and 120 schemas of some fifteen properties that refer to each
other in chains of six. It is made here, so that nothing is read or parsed. One run, in seconds of CPU and of a clock: a second
one would find schemas that the first has compiled. The goal for 280 operations is 1.5 s.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import httpx2

from trio_mcp.openapi import from_openapi

OPERATIONS = 280
SCHEMAS = 120
CHAIN = 6
GOAL = 1.5

Json = dict[str, Any]


def schema(number: int) -> Json:
    """Return one of the schemas; the last of a chain refers to none."""
    properties: Json = {
        "id": {"type": "integer", "format": "int64"},
        "name": {"type": "string", "maxLength": 100, "pattern": "^[a-z]+$"},
        "state": {"type": "string", "enum": ["open", "closed"]},
        "labels": {"type": "array", "items": {"type": "string"}},
        "score": {"type": "number", "minimum": 0},
        **{
            f"field_{each}": {"type": "string", "nullable": True, "description": f"Field {each} of {number}."}
            for each in range(8)
        },
    }
    if number % CHAIN != CHAIN - 1:
        properties |= {name: {"$ref": f"#/components/schemas/S{number + 1}"} for name in ("first", "second")}
    return {"type": "object", "required": ["id", "name"], "properties": properties}


def document(operations: int) -> Json:
    """Return a document with this many operations."""
    paths: Json = {}
    for number in range(operations // 4):
        thing = {"$ref": f"#/components/schemas/S{number % SCHEMAS}"}
        body = {"required": True, "content": {"application/json": {"schema": thing}}}
        key = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}

        def answer(shown: Json) -> Json:
            return {"200": {"description": "ok", "content": {"application/json": {"schema": shown}}}}

        things = answer({"type": "array", "items": thing})
        paths[f"/things{number}"] = {
            "get": {"responses": things},
            "post": {"requestBody": body, "responses": answer(thing)},
        }
        paths[f"/things{number}/{{id}}"] = {
            "parameters": [key],
            "get": {"responses": answer(thing)},
            "put": {"requestBody": body, "responses": answer(thing)},
        }
    return {
        "openapi": "3.0.3",
        "info": {"title": "things", "version": "1"},
        "components": {"schemas": {f"S{number}": schema(number) for number in range(SCHEMAS)}},
        "paths": paths,
    }


def main(operations: int) -> int:
    source, client = document(operations), httpx2.AsyncClient(base_url="http://api.example")
    began = time.process_time(), time.perf_counter()
    server = from_openapi(source, client, strict=True)
    cpu, clock = time.process_time() - began[0], time.perf_counter() - began[1]
    print(f"{len(server.tools)} tools: {cpu:.2f} s of CPU, {clock:.2f} s")
    return 0 if operations != OPERATIONS or cpu <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else OPERATIONS))
