"""The page of metrics: what it has, in which format, and who may read it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from asgi_peer import AsgiPeer, Reply, modern_call, served
from pages import DOCS, Page
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from trio_mcp import HttpOptions, Server
from trio_mcp.http import Metrics
from trio_mcp.telemetry.meters import DURATIONS, METERS
from trio_mcp.telemetry.prometheus import merged, spelled
from trio_mcp_transports.http import asgi_app

HERE = ("127.0.0.1", 5000)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
ROOT = Path(__file__).parents[2]


def shop(metrics: bool | Metrics = True, **options: Any) -> Server:
    server = Server("shop", http=HttpOptions(metrics=metrics, **options))

    @server.tool
    def one() -> int:
        return 1

    @server.tool
    def fail() -> int:
        raise ValueError("no")

    return server


async def scrape(
    peer: AsgiPeer,
    headers: Mapping[str, str] | None = None,
    client: tuple[str, int] | None = HERE,
    path: str = "/metrics",
) -> Reply:
    lines = [(name.encode(), value.encode()) for name, value in {"host": "shop:8000", **(headers or {})}.items()]
    return await peer.start_raw(b"", lines, "GET", path, client=client).end()


async def call(peer: AsgiPeer, tool: str) -> None:
    message, headers = modern_call(tool)
    assert (await peer.post(message, {**headers, "host": "localhost"})).status == 200


def values(page: str) -> dict[str, float]:
    """The samples of a page, by their names and labels."""
    return {
        f"{sample.name}{sorted((key, value) for key, value in sample.labels.items() if value and key != 'le')}": sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.labels.get("le", "+Inf") == "+Inf"
    }


async def test_the_page_has_the_durations_and_the_numbers_of_the_service() -> None:
    async with served(asgi_app(shop())) as peer:
        for tool in ("one", "one", "fail"):
            await call(peer, tool)
        reply = await scrape(peer)
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain; version=")
    page = reply.body.decode()
    served_calls = [
        ("gen_ai_operation_name", "execute_tool"),
        ("gen_ai_tool_name", "one"),
        ("mcp_method_name", "tools/call"),
        ("mcp_protocol_version", "2026-07-28"),
        ("network_protocol_name", "http"),
        ("network_transport", "tcp"),
    ]
    assert values(page)[f"mcp_server_operation_duration_seconds_count{served_calls}"] == 2
    failed = sorted([*served_calls[:1], ("gen_ai_tool_name", "fail"), ("error_type", "tool_error"), *served_calls[2:]])
    assert values(page)[f"mcp_server_operation_duration_seconds_count{failed}"] == 1
    assert values(page)["trio_mcp_calls[('trio_mcp_state', 'running')]"] == 0
    assert values(page)["trio_mcp_calls_started_total[]"] == 3
    for name, meter in METERS.items():
        assert spelled(name, meter.unit) in page
    for name in DURATIONS:
        assert f"# TYPE {spelled(name, 's')} histogram" in page


async def test_the_page_is_openmetrics_for_a_scraper_that_accepts_it() -> None:
    async with served(asgi_app(shop())) as peer:
        await call(peer, "one")
        reply = await scrape(peer, {"accept": OPENMETRICS})
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in openmetrics.text_string_to_metric_families(reply.body.decode())}
    assert {"mcp_server_operation_duration_seconds", "trio_mcp_memory_used_bytes", "trio_mcp_calls_started"} <= names


async def test_there_is_no_page_unless_it_is_wanted() -> None:
    async with served(asgi_app(shop(metrics=False))) as peer:
        assert (await scrape(peer, {"host": "localhost"})).status == 404


TOKEN = {"authorization": "Bearer s3cret"}
FAR = ("10.1.2.3", 5000)
BROWSER = {"host": "evil.example:8000", "accept-language": "en", "user-agent": "Mozilla/5.0"}
"""It shows a page of a name that points at this machine."""


@pytest.mark.parametrize(
    ("metrics", "client", "headers", "status"),
    [
        (True, HERE, {}, 200),
        (True, ("::1", 1), {}, 200),
        (True, ("::ffff:127.0.0.1", 1), {}, 200),
        (True, None, {}, 200),
        (True, FAR, {}, 403),
        (True, HERE, {"origin": "http://shop:8000"}, 403),
        (True, HERE, {"sec-fetch-site": "same-origin"}, 403),
        (True, HERE, {"x-forwarded-for": "10.1.2.3"}, 403),
        (True, HERE, {"forwarded": "for=10.1.2.3"}, 403),
        (True, HERE, {"x-forwarded-host": "shop.example"}, 403),
        (True, HERE, {"x-real-ip": "10.1.2.3"}, 403),
        (True, HERE, {"via": "1.1 proxy"}, 403),
        (True, HERE, BROWSER, 403),
        (Metrics(token="s3cret"), FAR, TOKEN, 200),
        (Metrics(token="s3cret"), HERE, {}, 401),
        (Metrics(token="s3cret"), HERE, {"authorization": "Bearer s3cre"}, 401),
        (Metrics(token="s3cret"), HERE, {"authorization": "Bearer é"}, 401),
        (Metrics(token="s3cret", networks=["10.0.0.0/8"]), FAR, TOKEN, 200),
        (Metrics(token="s3cret", networks=["10.0.0.0/8"]), FAR, {}, 401),
        (Metrics(token="s3cret", networks=["10.0.0.0/8"]), HERE, TOKEN, 403),
        (Metrics(networks=["10.0.0.0/8"]), FAR, {}, 200),
        (Metrics(networks=["10.0.0.0/8"]), HERE, {}, 403),
        (Metrics(networks=["10.0.0.0/8"]), None, {}, 403),
        (Metrics(networks=["unix"]), None, {}, 200),
        (Metrics(public=True), FAR, {"origin": "http://evil.example"}, 200),
    ],
)
async def test_the_page_is_for_scrapers_with_the_token_or_in_the_network(
    metrics: bool | Metrics, client: tuple[str, int] | None, headers: dict[str, str], status: int
) -> None:
    async with served(asgi_app(shop(metrics))) as peer:
        reply = await scrape(peer, headers, client)
    assert reply.status == status
    assert (b"trio_mcp_calls" in reply.body) == (status == 200)


@pytest.mark.parametrize(
    ("proxies", "networks", "forwarded", "status"),
    [
        (["10.9.9.9"], None, "10.1.2.3", 403),
        (["10.9.9.9"], None, "127.0.0.1", 403),
        (["127.0.0.1"], None, "10.1.2.3", 403),
        (["127.0.0.1"], None, "127.0.0.1", 403),
        (["127.0.0.1"], ["10.1.0.0/16"], "10.1.2.3", 200),
        (["127.0.0.1"], ["10.1.0.0/16"], "10.1.2.3, 10.2.2.3", 403),
        (["127.0.0.1"], ["10.1.0.0/16"], "10.2.2.3", 403),
        (["127.0.0.1"], ["10.1.0.0/16"], "unknown", 403),
    ],
)
async def test_a_request_through_a_proxy_reads_the_metrics_if_a_network_is_named(
    proxies: list[str], networks: list[str] | None, forwarded: str, status: int
) -> None:
    async with served(asgi_app(shop(Metrics(networks=networks), trusted_proxies=proxies))) as peer:
        assert (await scrape(peer, {"x-forwarded-for": forwarded}, HERE)).status == status


async def test_the_page_does_not_depend_on_the_authentication_of_the_server() -> None:
    async def reject_all(_headers: Mapping[str, str]) -> None:
        return None

    async with served(asgi_app(shop(Metrics(path="/internal/metrics"), authenticate=reject_all))) as peer:
        assert (await scrape(peer, path="/internal/metrics")).status == 200


async def test_each_of_several_servers_has_its_page_below_its_prefix() -> None:
    async with served(asgi_app({"/a": shop(), "/b": shop(metrics=False)})) as peer:
        assert (await scrape(peer, path="/a/metrics")).status == 200
        assert (await scrape(peer, {"host": "localhost"}, path="/b/metrics")).status == 404


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (ValueError, {"token": ""}),
        (ValueError, {"token": "é"}),
        (TypeError, {"token": 1}),
        (TypeError, {"networks": "10.0.0.0/8"}),
        (ValueError, {"networks": ["10.0.0.1/8"]}),
        (ValueError, {"token": "a", "public": True}),
        (TypeError, {"public": 1}),
        (ValueError, {"path": "metrics"}),
    ],
)
def test_odd_options_are_rejected_and_no_error_shows_the_token(error: type[Exception], options: dict[str, Any]) -> None:
    with pytest.raises(error):
        Metrics(**options)
    assert "s3cret" not in repr(Metrics(token="s3cret"))


def test_the_path_of_the_metrics_collides_with_no_other() -> None:
    with pytest.raises(ValueError, match="metrics"):
        HttpOptions(metrics=Metrics(path="/health"))
    with pytest.raises(TypeError, match="metrics"):
        HttpOptions(metrics="yes")  # type: ignore[arg-type]


def test_the_metrics_of_several_processes_are_one_page() -> None:
    page = b"# HELP calls Calls.\n# TYPE calls counter\ncalls_total 2\n# EOF\n"
    text, media_type = merged({"a": page, "b": page}, "")
    assert text.decode().splitlines()[2:] == [
        'calls_total{trio_mcp_process="a"} 2.0',
        'calls_total{trio_mcp_process="b"} 2.0',
    ]
    assert media_type.startswith("text/plain")


MISSING = """
import sys
sys.modules["prometheus_client"] = None
from trio_mcp import HttpOptions, Server
from trio_mcp.errors import ConfigurationError
from trio_mcp_transports.http import asgi_app
try:
    asgi_app(Server("s", http=HttpOptions(metrics=True)))
except ConfigurationError as error:
    print(error)
asgi_app(Server("s"))
"""


def test_without_the_client_library_the_error_says_what_to_install() -> None:
    program = f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'transports')]!r}\n{MISSING}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "trio-mcp[prometheus]" in done.stdout


def test_every_metric_and_alert_is_on_the_page() -> None:
    text = Page("metrics").text
    for name in DURATIONS:
        assert f"`{name}`" in text
        assert f"`{spelled(name, 's')}`" in text
    for name in METERS:
        assert f"`{name}`" in text or f"`.{name.rpartition('.')[2]}`" in text
    rules = yaml.safe_load((DOCS / "deploy" / "prometheus-alerts.yaml").read_text())["groups"][0]["rules"]
    assert re.findall(r"^\| `(Mcp\w+)` \|", text, re.MULTILINE) == [rule["alert"] for rule in rules]
