"""What the page says is there, is, and every feature of FastMCP has its row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import Names, Page, main

import trio_mcp
from trio_mcp import Client, Context, PeerError, Server
from trio_mcp.testing import MockClient

PAGE = Page("fastmcp")
ROWS = re.findall(r"^\| (.*?) \| (.*) \|$", PAGE.text, re.MULTILINE)
THEIRS = " ".join(row[0] for row in ROWS)
OURS = " ".join(row[1] for row in ROWS)
NAMES = """
    name= title= description= icons= annotations= meta= output_schema= timeout= tags= enabled= version= task= auth=
    run_in_thread= on_duplicate= strict_input_validation= mime_type= cache_ttl= Image Audio File ToolResult TextResource
    FileResource DirectoryResource prompt completion report_progress debug info elicit AcceptedElicitation sample
    result_type= tools= list_roots read_resource get_prompt list_tools set_state get_state UserSession session_id request_id
    client_id lifespan_context lifespan= Depends CurrentContext mount import_server create_proxy from_openapi from_fastapi
    route_maps= Tool.from_tool BM25SearchTransform CodeMode add_middleware TimingMiddleware LoggingMiddleware
    ErrorHandlingMiddleware RetryMiddleware RateLimitingMiddleware ResponseCachingMiddleware ResponseLimitingMiddleware
    PingMiddleware enable_components JWTVerifier OAuthProxy custom_route http_app Docket Redis session_state_store=
    event_store= OpenTelemetry website_url= instructions= stateless_http= json_response= WebSocket run_async --reload
    factory fastmcp.json mcpServers inspector inspect install list discover generate-cli call FASTMCP_ elicitation_handler=
    sampling_handler= log_handler= progress_handler= roots= listen cache result.data ClientGroup asgi_client OAuth
    auth="token" StdioTransport mask_error_details= host_origin_protection= request_state_security=
    http_session_idle_timeout= apps close_sse_stream input_responses
"""
"""What part E of the comparison with FastMCP names, and what its documentation lists."""


@pytest.fixture(scope="module")
def page() -> Names:
    return PAGE.run()


async def test_a_folder_is_resources(page: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("A")
    async with Client.connect(page["server"]) as client:
        assert (await client.read_resource("texts://all")).text == '["a.txt"]'
        assert (await client.read_resource("texts://a.txt")).text == "A"
        for other in ("texts://b.txt", "texts://..", "texts://..%2Fa.txt"):
            with pytest.raises(PeerError):
                await client.read_resource(other)


async def test_results_are_cached(page: Names) -> None:
    for _ in range(2):
        await MockClient().call(page["search"], query="Em", language="en")
    assert len(page["cached"]) == 1


def test_every_feature_of_fastmcp_has_a_row_with_both_sides() -> None:
    assert [feature for feature in NAMES.split() if feature not in THEIRS] == []
    assert [theirs for theirs, ours in ROWS if not theirs.strip() or not ours.strip()] == []


def test_the_members_that_the_tables_name_exist() -> None:
    members = {("ctx", name) for name in re.findall(r"`ctx\.(\w+)", OURS)}
    members |= {("server", name) for name in re.findall(r"`@?server\.(\w+)", OURS)}
    assert len(members) > 12
    missing = [(owner, name) for owner, name in members if not hasattr(Context if owner == "ctx" else Server, name)]
    exported = {name for name in re.findall(r"`([A-Z]\w+)(?:\(.*?\))?`", OURS) if not hasattr(trio_mcp, name)}
    elsewhere = {"MockClient", "Loan", "PromptMessage", "Literal", "None", "TRIO_MCP_KEYS", "TRIO_MCP_SERVE_PORT"}
    assert (missing, exported - elsewhere) == ([], set())


def test_the_commands_that_the_tables_name_exist() -> None:
    commands = set(re.findall(r"`trio-mcp ([a-z]+)", OURS))
    assert {"run", "serve", "install", "publish"} <= commands
    assert [name for name in commands if main([name, "--help"]) != 0] == []
