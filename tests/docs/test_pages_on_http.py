"""What the code of the pages on HTTP, logins, telemetry and APIs does."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import httpx2
import pytest
import trio
from connected import connected
from joserfc.jwk import ECKey
from model_api import model_api, openai_answer, openai_events, says, streams
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pages import Names, Page, kept as page, run
from serving import ROOT, START, served
from talk import talk_to
from trio.testing import MockClock

from trio_mcp import Caller, Client, HttpOptions, SamplingProvider, Server, accept
from trio_mcp.errors import ProtocolError
from trio_mcp.http import Metrics
from trio_mcp.providers import OpenAIProvider
from trio_mcp.testing import MockClient
from trio_mcp.types import CreateMessageRequestParams, SamplingMessage, TextContent
from trio_mcp_transports.http import asgi_app

BOUND = 20.0
SIGNED = {"host": "mcp.example.com", "authorization": "Bearer a-long-random-token"}


@asynccontextmanager
async def asked(app: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an application, which serves meanwhile."""
    with trio.fail_after(BOUND):
        async with app.lifespan(), httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
            yield client


# http.md, deployment.md


@pytest.mark.parametrize(
    ("name", "authorization", "principal"),
    [
        ("http", "Bearer a-long-random-token", "alice"),
        ("http", "bearer another-long-random-token", "bob"),
        ("http", "Bearer wrong", None),
        ("http", "Basic a-long-random-token", None),
        ("http", "Bearer", None),
        ("http", "", None),
        ("http", "Bearer \xff", None),
        ("deployment", "Bearer a-long-random-token", "alice"),
        ("deployment", "bearer a-long-random-token", "alice"),
        ("deployment", "a-long-random-token", None),
        ("deployment", "Basic a-long-random-token", None),
        ("deployment", "Bearer wrong", None),
    ],
)
async def test_who_calls_is_known_by_a_token_with_its_scheme(
    name: str, authorization: str, principal: str | None
) -> None:
    options = {"authenticate": page(name)["authenticate"]} if name == "http" else {}
    app = asgi_app(page(name)["server"], **options)
    with nullcontext() if principal else pytest.raises(ProtocolError):
        assert await app.principal_of({"authorization": authorization}) == principal


@pytest.mark.parametrize(
    ("app", "path", "status"),
    [
        ("app", "/mcp", 401),
        ("app", "/sse", 401),
        ("both", "/mcp", 204),
        ("both", "/message", 204),
        ("alone", "/message", 204),
        ("alone", "/mcp", 404),
    ],
)
async def test_the_applications_are_reached_where_the_page_says(
    autojump_clock: MockClock, app: str, path: str, status: int
) -> None:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=page("http")[app])) as client:
        with trio.fail_after(BOUND):
            assert (await client.options(f"http://localhost{path}")).status_code == status


async def test_a_caller_has_the_scopes_that_the_page_gives_it() -> None:
    names = page("http")
    bob = await names["editors"].caller_of({"authorization": "Bearer another-long-random-token"})
    alice = await names["editors"].caller_of({"authorization": "Bearer a-long-random-token"})
    assert (sorted(bob.scopes), sorted(alice.scopes)) == (["notes:read"], ["notes:read", "notes:write"])
    assert [names["is_editor"](caller) for caller in (None, bob, alice)] == [False, False, True]
    assert alice.claims == {"team": "blue"}


async def test_the_routes_of_the_page_answer_as_it_says(autojump_clock: MockClock) -> None:
    async with asked(page("deployment")["app"]) as client:
        url = "http://10.1.2.3"
        for path, text in (("health", "ok"), ("ready", "ready"), ("version", "1.0")):
            assert (await client.get(f"{url}/{path}")).text == text
        assert (await client.post(f"{url}/webhook", json=3)).status_code == 421
        answer = await client.post(f"{url}/webhook", json=3, headers=SIGNED)
        assert (answer.status_code, answer.json()) == (202, {"caller": "alice", "order": 3})
        assert (await client.post(f"{url}/mcp", json={}, headers={"host": "mcp.example.com"})).status_code == 401


async def test_a_proxy_reaches_the_server_below_its_prefix(autojump_clock: MockClock) -> None:
    async with asked(page("deployment")["behind"]) as client:
        for path in ("/tools/version", "/version"):
            assert (await client.get(f"http://mcp.example.com{path}")).status_code == 200


@pytest.mark.parametrize("name", ["starlette_app", "fastapi_app"])
async def test_a_framework_serves_it_below_the_prefix(name: str, autojump_clock: MockClock) -> None:
    app: Any = page("deployment")[name]
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
        assert (await client.get("http://x/tools/health")).text == "ok"
        assert (await client.get("http://x/tools/version")).text == "1.0"


def test_the_record_of_the_page_is_one_line_of_json() -> None:
    (line,) = Page("deployment").text.partition("```json\n")[2].partition("\n```")[0].splitlines()
    record: Mapping[str, Any] = json.loads(line)
    assert record["call"]["outcome"] == "ok"


# websocket.md, observing.md, and the calls with curl


async def test_the_clock_of_the_page_counts_over_a_websocket() -> None:
    names = run("websocket")
    with trio.fail_after(BOUND):
        async with served(names["server"]) as url:
            assert await names["visit"](url.replace("http:", "ws:"), "token") == "counted to 3"


async def test_a_route_shows_the_tree() -> None:
    with trio.fail_after(BOUND):
        async with served(run("observing")["server"]) as url, httpx2.AsyncClient() as http:
            (tree,) = (await http.get(url.replace("/mcp", "/tree"))).json()
    assert (tree["name"], tree["clients"]) == ("travel", [])


def curl_of(name: str) -> list[str]:
    return [block for block in re.findall(r"```sh\n(.*?)```", Page(name).text, re.DOTALL) if "curl" in block]


@pytest.mark.wires
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(
    ("name", "script", "printed"),
    [
        *(("http", script, ['"text":"alice"']) for script in curl_of("http")),
        *(
            ("rounds", script, ['"message":"Charge 30 euros?"', '"text":"Charged 30 euros."'])
            for script in curl_of("rounds")
        ),
    ],
)
async def test_a_tool_is_called_and_answered_with_curl(name: str, script: str, printed: list[str]) -> None:
    names = run(name)
    async with served(names["server"], authenticate=names.get("authenticate")) as url:
        assert url.endswith("/mcp")
        with trio.fail_after(START):
            script = script.replace("http://127.0.0.1:8000/mcp", url)
            done = await trio.run_process(["/bin/sh", "-ec", script], capture_stdout=True)
    text = done.stdout.decode()
    assert [part for part in printed if part not in text] == []
    if name == "rounds":
        assert names["ledger"][-2:] == ["reserved 30", "charged 30"]
        shown = Page(name).text.partition("```text\n{")[2].partition("```")[0]
        assert [member for member in re.findall(r'"[\w-]+":', shown) if member not in text] == []


def test_the_pages_have_their_calls_with_curl() -> None:
    assert (len(curl_of("http")), len(curl_of("rounds"))) == (2, 1)


# authorization.md, logins.md, oauth-proxy.md


async def test_the_servers_on_the_page_have_what_the_page_says() -> None:
    names = page("authorization")
    place = "https://example.com/tools/.well-known/oauth-protected-resource"
    assert names["behind"].challenge(root="/tools")["resource_metadata"] == place
    assert names["entra"].challenge()["scope"] == f"api://{names['CLIENT_ID']}/notes.read"
    hook = names["private"].http.authenticate
    assert await hook({"authorization": "Bearer a-long-random-token"}) == Caller("ci")
    assert await names["is_employee"]({"company": "example"}) is not None
    assert await names["is_employee"]({}) is None


async def test_a_program_without_its_user_says_what_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRIO_MCP_AUTH_DIR", str(tmp_path))

    async def nobody(headers: object) -> None:
        return None

    async with served(Server("notes", http=HttpOptions(authenticate=nobody))) as url:
        assert await page("logins")["nightly"](url) == f"log in first: trio-mcp login {url}"


async def test_the_settings_on_the_page_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    names = page("logins")
    assert await names["in_a_window"].browser("https://login.example.com") is None
    assert await names["employee"].id_token()
    monkeypatch.setenv("ROBOT_KEY", json.dumps(ECKey.generate_key("P-256").as_dict(private=True)))
    made = [names[name] for name in ("robot", "pod", "employee", "in_a_window")]
    for settings in (*made, names["signing_robot"]()):
        async with settings.open("https://mcp.example.com/mcp") as credentials:
            assert credentials.shown == "https://mcp.example.com/mcp"


async def test_the_tool_says_who_calls() -> None:
    names: Names = {}
    exec(compile(Page("oauth-proxy").blocks[0], "notes.py", "exec", dont_inherit=True), names)
    octocat = MockClient(caller=Caller("583231", claims={"login": "octocat"}))
    assert (await octocat.call((names["server"], "whoami"))).text == "octocat is user 583231 of GitHub"


@pytest.mark.parametrize(
    ("status", "state", "expected"),
    [(200, "active", {"login": "octocat"}), (200, "pending", None), (404, "active", None)],
)
async def test_members_of_an_organization_may_log_in(
    monkeypatch: pytest.MonkeyPatch, status: int, state: str, expected: object
) -> None:
    async def get(self: httpx2.AsyncClient, url: str, headers: dict[str, str]) -> httpx2.Response:
        assert headers == {"authorization": "Bearer a-token"}
        return httpx2.Response(status, json={"state": state})

    monkeypatch.setattr(httpx2.AsyncClient, "get", get)
    assert await page("oauth-proxy")["member"]({"login": "octocat"}, "a-token") == expected


def test_the_server_of_the_page_has_the_routes_of_the_proxy() -> None:
    hook = page("oauth-proxy")["server"].http.authenticate
    assert "/mcp/oauth/callback" in [route.path for route in hook.routes(["/mcp"], list)]


# openapi.md, providers.md


async def test_the_servers_of_the_page_offer_what_it_says() -> None:
    names = run("openapi")
    assert names["report"].tools == ("list_pets", "get_pet")
    assert [tool.name for tool in names["chosen"].tools] == ["find_pets", "add_pet", "get_pet"]
    assert names["chosen"].tools[1].access.scopes == {"pets:write"}
    async with connected(names["own"]) as client:
        assert [tool.name for tool in await client.list_tools()] == ["search_tools", "call_tool", "list_pets"]
        found = await client.call_tool("call_tool", {"name": "get_pet", "arguments": {"number": 1}})
        assert found.data == {"name": "Tom"}


async def test_the_credentials_of_the_page_are_those_of_the_caller() -> None:
    async with talk_to(run("openapi")["private"]) as talk:
        for principal, fails in (("ann", False), ("bob", True)):
            client = type(talk)(talk.service, principal=principal)
            assert (await client.result(client.leg("list_pets"))).get("isError", False) is fails


REQUEST = CreateMessageRequestParams(
    messages=[SamplingMessage(role="user", content=TextContent(text="hi"))], max_tokens=9
)


@pytest.fixture
def providers(monkeypatch: pytest.MonkeyPatch) -> Names:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-the-environment")
    return run("providers")


async def test_its_consent_refuses_a_request_that_is_too_long(providers: Names) -> None:
    assert not await providers["consent"](REQUEST.model_copy(update={"max_tokens": 10_001}), "poet")


async def test_its_own_provider_answers_a_server(providers: Names) -> None:
    with trio.fail_after(BOUND):
        assert "Write a haiku about rain." in await providers["call"](providers["make_server"](), providers["Parrot"]())
    assert isinstance(providers["Parrot"](), SamplingProvider)


@pytest.mark.wires
async def test_its_providers_ask_a_local_server(providers: Names, capsys: pytest.CaptureFixture[str]) -> None:
    async with model_api(says(openai_answer()), says(openai_answer()), streams(openai_events())) as api:
        provider = OpenAIProvider("model-1", base_url=f"{api.url}/v1")
        assert await providers["call_often"](providers["make_server"](), provider, 2) == ["Hello.", "Hello."]
        assert api.connections == 1
        await providers["print_answer"](provider, REQUEST)
    assert capsys.readouterr().out == "Looking. (toolUse)\n"


# telemetry.md, metrics.md


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield spans
    provider.shutdown()


async def test_the_server_of_the_page_makes_the_spans_that_it_names(exporter: InMemorySpanExporter) -> None:
    async with Client.connect(run("telemetry")["server"], on_elicit=lambda _form: accept(value=True)) as client:
        result = await client.call_tool("book_flight", {"destination": "Lisbon"})
    assert result.data == "A flight to Lisbon is booked: 12A."
    found, text = {span.name for span in exporter.get_finished_spans()}, Page("telemetry").text
    for name in ("tools/call book_flight", "elicitation/create", "look for seats"):
        assert name in found
        assert f"`{name}`" in text


def test_every_attribute_of_ours_is_on_the_page() -> None:
    text = "".join(file.read_text("utf-8") for file in (ROOT / "trio_mcp").rglob("*.py"))
    written = set(re.findall(r'(?:details|shown)(?:\[|[^\n]*= \{)"(trio_mcp\.\w+)"', text))
    shown = set(re.findall(r"`(trio_mcp\.[a-z_]+)`", Page("telemetry").text)) - {"trio_mcp.telemetry"}
    assert {"trio_mcp.leg", "trio_mcp.replay", "trio_mcp.process"} <= written
    assert written == shown


def test_the_picture_of_the_dashboard_has_every_panel_and_is_small() -> None:
    picture = ROOT / "docs" / "pictures" / "dashboard.svg"
    assert f"({picture.relative_to(ROOT / 'docs')})" in Page("metrics").text
    drawn = {"".join(each.itertext()) for each in ET.parse(picture).iter() if each.tag.endswith("}text")}
    panels = json.loads((ROOT / "docs" / "deploy" / "grafana-dashboard.json").read_text())["panels"]
    assert {panel["title"] for panel in panels} <= drawn
    assert picture.stat().st_size < 60_000


def test_the_options_on_the_page_are_those_of_the_code() -> None:
    names = run("metrics")
    assert names["shop"].http.metrics == names["with_token"] == Metrics(token="a long random text")
    assert names["server"].http.metrics is True
