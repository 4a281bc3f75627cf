"""Draw the dashboard of docs/metrics.md from a real run: `make dashboard` writes docs/pictures/dashboard.svg.

A server with tools that succeed, ask, fail, block and hang is loaded for a minute and a half; a Prometheus (which has to be
there) scrapes it, and answers the queries of docs/deploy/grafana-dashboard.json. The panels are drawn with Matplotlib, in the
places that they have in Grafana.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import httpx2
import trio
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bench.plot import INK, SETTINGS, STYLE
from trio_mcp import Client, Context, Server, accept
from trio_mcp.errors import McpError
from trio_mcp.protocol.sealing.request_state import KeyRing
from trio_mcp.session import Limits, MemoryBudget, ServiceOptions

HERE: Final = Path(__file__).parent
PICTURE: Final = HERE / "dashboard.svg"
DASHBOARD: Final = HERE.parent / "deploy" / "grafana-dashboard.json"
SECONDS: Final = 90
STEP: Final = 3
"""Seconds between the points of a curve."""
INTERVAL: Final = "10s"
"""What Grafana puts in place of `$__rate_interval`."""
PORTS: Final = {"server": 8791, "prometheus": 8792}
COLOURS: Final = (
    "#3b8ed0",
    "#d1495b",
    "#3f9e6a",
    "#d19a1f",
    "#8b6fc6",
    "#8a8f98",
    "#c76b98",
    "#4aa5a5",
    "#a0793d",
    "#6f8f2f",
)
"""Those of the curves, which can be seen on light and on dark."""
FACTORS: Final = {"s": (1000.0, " ms"), "percentunit": (100.0, " %"), "reqps": (1.0, "/s"), "short": (1.0, "")}
"""What the values of a unit of Grafana are multiplied with, and what is written after them."""

options = ServiceOptions(
    actors=Limits(actors=16),
    cancel_grace=0.2,
    watchdog=0.05,
    memory=MemoryBudget(8 * 2**20),
    store=os.environ.get("STORE"),
    keys=KeyRing.random(),
)
server = Server("books", options=options)


@server.tool
async def find_book(title: str) -> str:
    """Look a book up."""
    await trio.sleep(random.uniform(0.01, 0.12))  # noqa: S311
    return f"{title} is on shelf {len(title)}."


@server.tool(resume="replay")
async def order_book(title: str, ctx: Context) -> str:
    """Order a book, and let the user confirm it."""
    await trio.sleep(0.02)
    return (await ctx.elicit(f"Order {title}?", bool)).action


@server.tool
async def reserve(title: str) -> None:
    """Fail."""
    raise ValueError(f"{title} is sold out")


@server.tool(task=True)
async def write_report() -> str:
    """Work for a while."""
    await trio.sleep(1)
    return "done"


@server.tool(timeout=0.1)
async def ask_publisher() -> None:
    """Take too long."""
    await trio.sleep_forever()


@server.tool
async def import_list() -> None:
    """Block the event loop."""
    time.sleep(0.1)  # noqa: ASYNC251  it is what the watchdog is to see


@server.tool(timeout=0.05)
async def print_invoice() -> None:
    """Ignore its cancel."""
    with trio.CancelScope(shield=True):
        await trio.sleep(2)


async def load(url: str) -> None:
    """Call the tools for as long as the picture is about, at a rate that goes up and down."""
    with trio.move_on_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(repeat, url, 0.1, "find_book", {"title": "Middlemarch"})
            nursery.start_soon(repeat, url, 0.12, "find_book", {"title": "Emma"})
            nursery.start_soon(repeat, url, 0.2, "order_book", {"title": "Ulysses"})
            nursery.start_soon(repeat, url, 0.4, "reserve", {"title": "Nostromo"})
            nursery.start_soon(repeat, url, 0.8, "write_report", {})
            nursery.start_soon(repeat, url, 1, "ask_publisher", {})
            nursery.start_soon(repeat, url, 7, "import_list", {})
            nursery.start_soon(repeat, url, 23, "print_invoice", {})
            for number in range(5):
                nursery.start_soon(hold_session, url, 4.0 + 5 * number)


async def repeat(url: str, pause: float, tool: str, arguments: dict[str, Any]) -> None:
    """Call a tool again and again, over one connection."""
    began = trio.current_time()
    async with Client.connect(url, on_elicit=confirm) as client, trio.open_nursery() as nursery:
        while True:
            nursery.start_soon(call, client, tool, arguments)
            busy = 1.5 + math.sin((trio.current_time() - began) / 9 + len(tool))
            await trio.sleep(pause / busy)


async def call(client: Client, tool: str, arguments: dict[str, Any]) -> None:
    try:
        await client.call_tool(tool, arguments)
    except McpError:
        return  # What the limits of the server refuse is in the picture.


async def confirm(_form: object) -> Any:
    """Answer a question as a user does, after a while."""
    await trio.sleep(0.5)
    return accept(value=True)


async def hold_session(url: str, seconds: float) -> None:
    """Open legacy sessions, one after the other."""
    while True:
        async with Client.connect(url, mode="legacy"):
            await trio.sleep(seconds)


@contextmanager
def running(*command: str, **variables: str) -> Iterator[None]:
    """Run a command in the block."""
    process = subprocess.Popen(
        command, env={**os.environ, **variables}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def wait_ready(url: str) -> None:
    """Wait until something answers at a URL."""
    with trio.fail_after(60):
        async with httpx2.AsyncClient() as http:
            while True:
                try:
                    if (await http.get(url)).is_success:
                        return
                except httpx2.TransportError:
                    await trio.sleep(0.1)


async def record() -> dict[str, list[Any]]:
    """Return what Prometheus answers to each query of the dashboard about a server under load."""
    served, asked = (f"127.0.0.1:{port}" for port in PORTS.values())
    with tempfile.TemporaryDirectory() as folder:
        scraped = [{"job_name": "mcp", "static_configs": [{"targets": [served]}]}]
        settings = Path(folder) / "prometheus.yml"
        settings.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": scraped}))
        serving = [sys.executable, "-m", "trio_mcp", "serve", __file__, "--metrics", "--port", str(PORTS["server"])]
        scraping = [f"--config.file={settings}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={asked}"]
        with running(*serving, STORE=f"{folder}/state.db"), running("prometheus", *scraping):
            await wait_ready(f"http://{served}/metrics")
            await wait_ready(f"http://{asked}/-/ready")
            began = time.time()
            await load(f"http://{served}/mcp")
            queries = [target["expr"] for panel in panels() for target in panel["targets"]]
            return {query: await curves(f"http://{asked}", query, began) for query in queries}


async def curves(url: str, query: str, began: float) -> list[Any]:
    """Return what a query has for an answer over the time of the load."""
    expression = query.replace("$__rate_interval", INTERVAL)
    asked = {"query": expression, "start": began + 6, "end": began + SECONDS, "step": STEP}
    async with httpx2.AsyncClient(timeout=30) as http:
        body = (await http.get(f"{url}/api/v1/query_range?{urlencode(asked)}")).json()
    found: list[Any] = body["data"]["result"]
    return found


def panels() -> list[Any]:
    found: list[Any] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def svg(answers: Mapping[str, list[Any]]) -> str:
    """Return the picture."""
    with rc_context({**SETTINGS, "font.size": 8.0, "font.sans-serif": ["DejaVu Sans"], "svg.hashsalt": "dashboard"}):
        rows = max(panel["gridPos"]["y"] for panel in panels()) // 8 + 1
        figure = Figure(figsize=(9.0, 1.75 * rows), layout="constrained")
        figure.patch.set_visible(False)
        grid = figure.add_gridspec(rows, 2)
        for panel in panels():
            place = panel["gridPos"]
            draw(figure.add_subplot(grid[place["y"] // 8, place["x"] // 12]), panel, answers)
        said = StringIO()
        figure.savefig(said, format="svg", metadata={"Date": None, "Creator": None})
    head, found, rest = shorter(said.getvalue().replace(INK, "currentColor")).partition("<defs>")
    return head + STYLE + found + rest


def shorter(drawn: str) -> str:
    """Return the picture without what makes no difference that can be seen: a tenth of a point is finer than that."""
    drawn = re.sub(r"\d+\.\d{2,}", lambda found: f"{float(found[0]):.1f}", drawn)
    drawn = re.sub(r' transform="rotate\(-0[^"]*"|<g id="line2d_\d+"/>|(?<=<g) id="[a-z_]+\d+"', "", drawn)
    drawn = re.sub(r" font-family: [^;]*;", " font-family: sans-serif;", drawn)
    return re.sub(r"\s*\n *", "\n", drawn.replace("\nL ", "L"))


def draw(axes: Axes, panel: Any, answers: Mapping[str, list[Any]]) -> None:
    """Draw one panel."""
    factor, unit = FACTORS[panel["fieldConfig"]["defaults"]["unit"]]
    colours = iter(COLOURS)
    for target in panel["targets"]:
        for series in answers[target["expr"]]:
            name = legend(target["legendFormat"], series["metric"])
            points = [(float(at), float(value) * factor) for at, value in series["values"] if value != "NaN"]
            if points:
                first = float(answers[panels()[0]["targets"][0]["expr"]][0]["values"][0][0])
                axes.plot(
                    [round(at - first) for at, _ in points],
                    [value for _, value in points],
                    color=next(colours, COLOURS[-1]),
                    linewidth=1.2,
                    label=name,
                )
    axes.patch.set_visible(False)
    axes.set_title(panel["title"], loc="left", fontsize=9, fontweight="bold")
    axes.set_xlim(0, SECONDS - 6)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g} s"))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}{unit}"))
    axes.grid(axis="y", alpha=0.2)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.05), frameon=False, fontsize=7, handlelength=1, borderpad=0)


def legend(pattern: str, labels: Mapping[str, str]) -> str:
    """Return the name of a curve, as Grafana makes it."""
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), pattern).strip() or "server"


if __name__ == "__main__":
    PICTURE.write_text(svg(trio.run(record)))
