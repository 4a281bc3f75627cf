"""The metrics of workers as one page, and the dashboard and the alerts of the documentation, run by Prometheus."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
import yaml
from crew import Crew, serving
from prometheus_client.parser import text_string_to_metric_families
from serving import START, free_port

from trio_mcp import Client

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc for the workers")

HERE = Path(__file__).parent
PAGES = HERE.parents[2] / "docs" / "deploy"
LOADED = HERE / "loaded_server.py"
TOKEN = {"TRIO_MCP_METRICS_TOKEN": "s3cret"}
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short name: sockets are in it."""
    return tmp_path_factory.mktemp("w")


def page_of(crew: Crew) -> str:
    return crew.url.replace("/mcp", "/metrics")


async def scrape(crew: Crew, token: str = "s3cret") -> httpx2.Response:
    with trio.fail_after(START):
        async with httpx2.AsyncClient(timeout=START) as http:
            return await http.get(page_of(crew), headers={"authorization": f"Bearer {token}"})


async def test_any_worker_shows_the_metrics_of_all(short: Path) -> None:
    async with serving(short, "--metrics", server=LOADED, **TOKEN) as crew:
        found: set[str] = set()
        with trio.fail_after(START):
            while len(found) < 3:
                found.add(await crew.call("where"))
        for _ in range(6):
            families = {each.name: each for each in text_string_to_metric_families((await scrape(crew)).text)}
            calls = [s for s in families["trio_mcp_calls_started"].samples if s.name.endswith("_total")]
            assert len({each.labels["trio_mcp_process"] for each in calls}) == 3
            assert all(each.value >= 1 for each in calls)
        assert (await scrape(crew, "other")).status_code == 401


async def test_a_worker_that_is_frozen_is_left_out(short: Path) -> None:
    async with serving(short, "--metrics", server=LOADED, workers=2, **TOKEN) as crew:
        frozen = min(crew.pids)
        os.kill(frozen, signal.SIGSTOP)
        try:
            page = await scraped_from_another(crew)
        finally:
            os.kill(frozen, signal.SIGCONT)
        families = {each.name: each for each in text_string_to_metric_families(page)}
        assert len({each.labels["trio_mcp_process"] for each in families["trio_mcp_calls"].samples}) == 1


async def scraped_from_another(crew: Crew) -> str:
    """The page of a worker that is not frozen: a connection to the frozen one gets no answer."""
    with trio.fail_after(START):
        while True:
            with trio.move_on_after(4):
                return (await scrape(crew)).text


@asynccontextmanager
async def prometheus(crew: Crew, folder: Path) -> AsyncIterator[str]:
    """Run a Prometheus that scrapes the server; yields its URL."""
    target = page_of(crew).removeprefix("http://").removesuffix("/metrics")
    scraped = {"job_name": "mcp", "authorization": {"credentials": "s3cret"}, "static_configs": [{"targets": [target]}]}
    settings = {"global": {"scrape_interval": "500ms"}, "scrape_configs": [scraped]}
    file, address = folder / "prometheus.yml", f"127.0.0.1:{free_port()}"
    file.write_text(json.dumps(settings))
    command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
    process = await trio.lowlevel.open_process(
        [*command, f"--web.listen-address={address}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield f"http://{address}"
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def answer(url: str, query: str) -> list[Any]:
    """What Prometheus answers to a query."""
    async with httpx2.AsyncClient(timeout=START) as http:
        response = await http.get(f"{url}/api/v1/query", params={"query": query})
    body = response.json()
    assert body["status"] == "success", (query, body)
    return list(body["data"]["result"])


def queries() -> list[str]:
    panels = json.loads((PAGES / "grafana-dashboard.json").read_text())["panels"]
    return [target["expr"].replace("$__rate_interval", "30s") for panel in panels for target in panel["targets"]]


def alerts() -> list[str]:
    groups = yaml.safe_load((PAGES / "prometheus-alerts.yaml").read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


@needs_prometheus
async def test_every_query_of_the_dashboard_has_an_answer_from_a_loaded_server(short: Path, tmp_path: Path) -> None:
    async with (
        serving(short, "--metrics", server=LOADED, workers=2, **TOKEN) as crew,
        prometheus(crew, tmp_path) as url,
    ):
        # What an alert compares has a value, too.
        open_queries = [*queries(), *(query.replace("> 0", ">= 0") for query in alerts() if query.endswith("> 0"))]
        with trio.fail_after(60):
            while open_queries:
                async with trio.open_nursery() as nursery:
                    for tool in ("where", "fail", "block", "hang", "slow", "ask", "work"):
                        nursery.start_soon(lambda name=tool: crew.post("tools/call", name=name, arguments={}))
                    nursery.start_soon(legacy_session, crew.url)
                open_queries = [query for query in open_queries if not await answer(url, query)]
        for query in alerts():
            await answer(url, query)


async def legacy_session(url: str) -> None:
    async with Client.connect(url, mode="legacy") as client:
        await client.ping()


@needs_prometheus
def test_the_alerts_are_rules_of_prometheus() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(PAGES / "prometheus-alerts.yaml")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(alerts())} rules found" in done.stdout + done.stderr
