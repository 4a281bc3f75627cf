"""A FastAPI application as an MCP server: its operations as tools, behind a search, with a key for each caller.

    trio-mcp serve examples/pet_shop.py    # or: python examples/pet_shop.py

It needs FastAPI (`pip install fastapi`). The application runs in this process; for one elsewhere, give the client its URL and
`from_openapi` its document, see docs/openapi.md.
"""

from __future__ import annotations

from typing import Annotated

import httpx2
from fastapi import FastAPI, Header, HTTPException
from pydantic import BaseModel

from trio_mcp import Caller, Server, ToolSearch
from trio_mcp.openapi import Operation, add_openapi
from trio_mcp.server import ToolKeywords

app = FastAPI(title="Pet shop")
PETS = {1: "Tom", 2: "Rex"}
KEYS = {"ann": "key-of-ann"}


class Pet(BaseModel):
    name: str


@app.get("/pets")
def list_pets(limit: int = 10) -> list[str]:
    """The names of all pets."""
    return [*PETS.values()][:limit]


@app.get("/pets/{number}")
def get_pet(number: int) -> Pet:
    """One pet by its number."""
    if number not in PETS:
        raise HTTPException(404, f"there is no pet {number}")
    return Pet(name=PETS[number])


@app.delete("/pets/{number}")
def sell_pet(number: int, x_key: Annotated[str, Header()] = "") -> str:
    """Sell a pet. Only for customers with a key."""
    if x_key not in KEYS.values():
        raise HTTPException(401, "a key is needed")
    return PETS.pop(number)


def credentials(caller: Caller | None) -> dict[str, str]:
    """Return the headers of a caller for the shop. What the caller sent to this server is not passed on."""
    key = None if caller is None else KEYS.get(caller.principal)
    return {} if key is None else {"X-Key": key}


def options(operation: Operation) -> ToolKeywords:
    """Let only callers with the scope change something."""
    return {} if operation.method == "GET" else {"scopes": ["pets:write"]}


server = Server("pet-shop", instructions="Sells pets.", tool_search=ToolSearch(pinned=["list_pets"]))
client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://pet-shop")
report = add_openapi(
    server, app, client, credentials=credentials, tool_options=options, resources=["GET /pets/{number}"]
)

if __name__ == "__main__":
    server.run()
