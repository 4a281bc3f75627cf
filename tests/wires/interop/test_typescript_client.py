"""The TypeScript SDK's client against our server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from peer_server import PIXEL
from processes import NEWEST, Target, said_by
from wire_terms import MODERN


def text_of(result: Mapping[str, Any]) -> str:
    [block] = result["content"]
    return block["text"]


@pytest.mark.parametrize(("revision", "transport"), NEWEST)
async def test_the_typescript_client_calls_asks_and_cancels(
    node_folder: Path, target: Target, revision: str, transport: str
) -> None:
    era = "auto" if revision == MODERN else "legacy"
    script = str(node_folder / "typescript_client.mjs")
    seen = await said_by("node", script, target=target("peer_server.py", transport), era=era)
    assert seen["version"] == revision
    assert seen["server"]["name"] == "peer"
    assert {"place", "plan_trip", "hold"} <= set(seen["tools"])
    assert seen["place"]["structuredContent"] == {"name": "Žižkov ⛰", "height": 263.5, "tags": ["hill"]}
    assert seen["picture"]["content"] == [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]
    assert (seen["refused"]["isError"], text_of(seen["refused"])) == (True, "no seat is left")
    assert seen["unknown"]["code"] == -32602
    assert "Unknown tool: nowhere" in seen["unknown"]["message"]
    assert text_of(seen["trip"]) == "Ada 3 100.5 True window wifi"
    assert seen["sum"]["structuredContent"] == {"result": 42}
    assert text_of(seen["thought"]) == "m-1: So be it."
    assert seen["folders"]["structuredContent"] == {"result": ["home=file:///home/ada"]}
    # this client drops reports that reach it in one piece with the answer; that they arrive at all, `hold` shows
    assert seen["progress"] == [1, 2, 3][: len(seen["progress"])]
    over_modern_http = (revision, transport) == (MODERN, "http")
    assert text_of(seen["ended"]) == ("disconnect" if over_modern_http else "client")
