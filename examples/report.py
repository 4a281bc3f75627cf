"""A report that takes minutes, asks its user once, and survives the death of the server.

    python examples/report.py                serves it on stdio
    python examples/report.py http 8000      serves it at http://127.0.0.1:8000/mcp
    python examples/report.py demo           kills the server twice while it works, and prints the report

The tool runs as a task: a client may leave, and ask for the result later. With a store and `resume="replay"` the next process
goes on where this one ended: a step whose result is stored is not run again, and an answer that was given is not asked for again.

What the server keeps is in `report.db`, sealed with the keys in `TRIO_MCP_KEYS`. `REPORT_FOLDER` names another folder than the
current one, and `REPORT_PACE` the seconds that each source takes (20 by default).
"""

from __future__ import annotations

import base64
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import trio

from trio_mcp import Client, ClientTask, Context, Server, ServiceOptions, accept
from trio_mcp.types import ElicitRequestFormParams, ElicitResult

SOURCES = {
    "tides": "The tide in the bay has a range of 6 metres.",
    "costs": "The station would cost 84 million euros.",
    "fish": "Herring spawn in the bay in March.",
    "ferries": "Two ferries cross the bay each hour.",
}
FOLDER = Path(os.environ.get("REPORT_FOLDER", "."))
ASKS = "the task asks its user, and waits"
PACE = float(os.environ.get("REPORT_PACE", "20"))

server = Server("reports", version="1.0", options=ServiceOptions(store=str(FOLDER / "report.db")))


@server.tool(task=True, resume="replay")
async def report(topic: str, ctx: Context) -> str:
    """Write a report, which takes minutes and asks once."""
    found: list[str] = []
    for number, source in enumerate(SOURCES, 1):
        await ctx.status(f"reading source {number} of {len(SOURCES)}: {source}")
        # Reading twice does no harm. A step that may be done only once would end the task if the server died in the middle of it.
        found.append(await ctx.step(f"read {source}", read, source, idempotent=True))
    answer = await ctx.elicit(f"The report on {topic} is written. Publish it?", bool)
    place = "the library" if answer.action == "accept" and answer.content else "the drawer"
    await ctx.status("filing the report")
    filed: str = await ctx.step("file", file_report, topic, place)
    return f"{filed}: {' '.join(found)}"


async def read(source: str) -> str:
    """Read a source; pretend that this takes long."""
    await trio.sleep(PACE)
    note(f"read {source}")
    return SOURCES[source]


async def file_report(topic: str, place: str) -> str:
    note(f"filed the report on {topic} in {place}")
    return f"Report on {topic}, in {place}"


def note(effect: str) -> None:
    """Write down what was done, for the demonstration to count."""
    with (FOLDER / "effects.txt").open("a") as file:
        file.write(f"{effect}\n")


class Demonstration:
    """The server in a separate process, which is killed and started again.

    Args:
        folder: for its store, and its notes.
    """

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/mcp"
        self._folder = folder
        key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        own = {"TRIO_MCP_KEYS": key, "REPORT_FOLDER": str(folder), "REPORT_PACE": "0.5"}
        self._environment = {**os.environ, **own}
        self._process: trio.Process | None = None

    @property
    def effects(self) -> list[str]:
        file = self._folder / "effects.txt"
        return file.read_text().splitlines() if file.exists() else []

    async def start(self) -> None:
        command = [sys.executable, __file__, "http", str(self._port)]
        self._process = await trio.lowlevel.open_process(command, env=self._environment, stderr=subprocess.PIPE)
        assert self._process.stderr is not None
        said = b""
        with trio.fail_after(20):
            while self.url.encode() not in said:
                more = await self._process.stderr.receive_some()
                if not more:
                    raise RuntimeError(f"the server did not start: {said.decode()}")
                said += more
        print(f"The server runs as process {self._process.pid}.")

    async def kill(self, when: str = "") -> None:
        if self._process is not None:
            if when:
                print(f"kill -9 {self._process.pid}, {when}\n")
            self._process.send_signal(signal.SIGKILL)
            with trio.CancelScope(shield=True):
                await self._process.wait()
            self._process = None


async def demonstrate() -> None:
    """Kill the server while it works and while its question is open; print what it did all the same."""
    print("A task survives `kill -9` of its server, twice, and does nothing twice")
    print("======================================================================\n")
    with tempfile.TemporaryDirectory() as folder:
        demonstration = Demonstration(Path(folder))
        try:
            with trio.fail_after(60):
                await demonstration.start()
                task_id = await begin(demonstration)
                await demonstration.kill("while the task reads its third source")
                await demonstration.start()
                await wait_for_question(demonstration, task_id)
                await demonstration.kill("while the question is open")
                await demonstration.start()
                await finish(demonstration, task_id)
        finally:
            await demonstration.kill()  # noqa: ASYNC102  it has a shield, and a killed process ends at once
        print("\nWhat was done, each once:")
        for effect in demonstration.effects:
            print(f"  {effect}")


async def begin(demonstration: Demonstration) -> str:
    """Start the task, and leave when it reads its third source."""
    async with Client.connect(demonstration.url, on_elicit=publish) as client:
        task = await client.start_tool("report", {"topic": "the tidal power station"})
        print(f"The task has the id {task.id[:12]}...")
        await follow(task, "source 3")
        return task.id


async def wait_for_question(demonstration: Demonstration, task_id: str) -> None:
    """Wait until the task asks, and do not answer."""
    async with Client.connect(demonstration.url, on_elicit=publish) as client:
        await follow(client.task(task_id), ASKS)


async def follow(task: ClientTask[object], last: str) -> None:
    """Print what a task says, until it says this."""
    said = ""
    async for state in task:
        message = ASKS if state.status == "input_required" else state.status_message or ""
        if message != said:
            said = message
            print(f"  {message}")
        if last in said:
            return


async def finish(demonstration: Demonstration, task_id: str) -> None:
    """Take the task up by its id, answer, and print the result."""
    async with Client.connect(demonstration.url, on_elicit=publish) as client:
        print(
            textwrap.fill((await client.task(task_id).result()).text, 78, initial_indent="  ", subsequent_indent="  ")
        )


async def publish(question: ElicitRequestFormParams) -> ElicitResult:
    print(f"  {question.message} Yes.")
    return accept(value=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["demo"]:
            trio.run(demonstrate)
        case ["http", port]:
            server.run("http", port=int(port))
        case _:
            server.run()
