"""Commands of old servers that take the probe of a client for fatal: each is started once more, and speaks the legacy era."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from trio_mcp import Client
from trio_mcp.errors import Disconnected

STRICT = """
import json, os, sys
started = open(sys.argv[1], "a")
started.write("x")
started.close()
first = True
for line in sys.stdin:
    message = json.loads(line)
    if first and message["method"] != "initialize":
        {end}
    first = False
    result = {{
        "initialize": {{"protocolVersion": "2025-06-18", "capabilities": {{}}, "serverInfo": {{"name": "s", "version": "1"}}}}
    }}.get(message["method"], {{}})
    if "id" in message:
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}), flush=True)
"""


@pytest.mark.parametrize("end", ["sys.exit(1)", "sys.exit(0)", "os.close(0); os.close(1); break", "os.abort()"])
@pytest.mark.parametrize("reconnect", [True, False])
async def test_a_command_that_ends_at_the_probe_is_started_once_more_as_a_legacy_server(
    end: str, reconnect: bool, tmp_path: Path
) -> None:
    script, starts = tmp_path / "strict_server", tmp_path / "starts"
    script.write_text(STRICT.format(end=end))
    command = [sys.executable, str(script), str(starts)]
    with trio.fail_after(30):
        async with Client.connect(command, reconnect=reconnect) as client:
            assert client.protocol_version == "2025-06-18"
            await client.ping()
    assert starts.read_text() == "xx"


@pytest.mark.parametrize(("mode", "starts"), [("auto", "xx"), ("legacy", "x"), ("2026-07-28", "x")])
async def test_a_command_that_always_ends_is_not_started_again_and_again(
    mode: str, starts: str, tmp_path: Path
) -> None:
    log = tmp_path / "starts"
    command = [sys.executable, "-c", f"open({str(log)!r}, 'a').write('x'); input()"]
    with trio.fail_after(30), pytest.raises(Disconnected, match="status 0"):
        await Client.connect(command, mode=mode).open()
    assert log.read_text() == starts


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say what is unread in a pipe")
@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_a_command_that_ends_without_having_read_the_probe_is_not_started_again(
    mode: str, tmp_path: Path
) -> None:
    log = tmp_path / "starts"
    command = [sys.executable, "-c", f"open({str(log)!r}, 'a').write('x'); import nothing_there"]
    with trio.fail_after(30), pytest.raises(Disconnected, match="status 1"):
        await Client.connect(command, mode=mode, stderr=subprocess.DEVNULL).open()
    assert log.read_text() == "x"
