"""The ports of FastMCP servers, in both eras."""

from __future__ import annotations

import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio
from connected import connected
from pydantic_core import to_json
from serving import IMPORTS, ROOT
from trio.testing import wait_all_tasks_blocked

from examples.ports import elicitation, file_search, long_running, sampling, sqlite, todo, weather
from trio_mcp import accept, decline, dismiss
from trio_mcp.testing import MockClient
from trio_mcp.types import ProgressNotificationParams

PORTS = sorted((ROOT / "examples" / "ports").glob("*.py"))


# all


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.stem)
async def test_a_port_is_served_on_stdio(port: Path, mode: str, tmp_path: Path) -> None:
    database = tmp_path / "empty.db"
    database.touch()
    env = {**IMPORTS, "SQLITE_DB_PATH": str(database)}
    handlers = {"on_elicit": lambda _question: decline(), "on_sample": lambda _params: "", "on_roots": list}
    async with connected([sys.executable, str(port)], mode, env=env, **handlers) as client:
        assert await client.list_tools()


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.stem)
def test_a_port_needs_no_ignore_and_builds_no_block(port: Path) -> None:
    text = port.read_text()
    assert "FastMCP" in text
    assert not re.findall(
        r"type: ignore|pyright:|noqa|\bcast\(|\bAny\b|TextContent|ImageContent|^ +global ", text, re.M
    )


# weather

ALERTS = {"features": [{"properties": {"event": "Flood", "areaDesc": "Marin", "severity": "Minor"}}]}
FORECAST = {"name": "Tonight", "temperature": 50, "temperatureUnit": "F", "shortForecast": "Fog"}


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery) -> str:
    """The URL of a weather service that knows one state and one place."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    monkeypatch.setenv("WEATHER_URL", url)
    answers = {
        "/alerts/active/area/CA": ALERTS,
        "/points/37.7700,-122.4200": {"properties": {"forecast": f"{url}/forecast"}},
        "/forecast": {"properties": {"periods": [FORECAST] * 9}},
    }

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            path = (await stream.receive_some(4096)).split()[1].decode()
            body = to_json(answers.get(path, {}))
            await stream.send_all(
                b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )

    nursery.start_soon(trio.serve_listeners, answer, listeners)
    return url


async def test_the_weather_is_fetched(mode: str, service: str) -> None:
    alerts = await MockClient(era=mode).call(weather.get_alerts, state="CA")
    assert alerts.data == ["Flood (Minor): Marin"]
    forecast = await MockClient(era=mode).call(weather.get_forecast, latitude=37.77, longitude=-122.42)
    assert forecast.data == ["Tonight: 50°F, Fog"] * 5


async def test_a_weather_service_that_answers_something_else_is_an_error_that_the_model_reads(
    mode: str, service: str
) -> None:
    result = await MockClient(era=mode).call(weather.get_alerts, state="XX")
    assert (result.is_error, result.text.startswith("The weather service did not answer")) == (True, True)
    assert (await MockClient(era=mode).call(weather.get_alerts, state="California")).is_error


# sqlite


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table goods (name text primary key, euros real)")
        database.execute("insert into goods values ('bread', 3.2)")
        database.commit()
    monkeypatch.setenv("SQLITE_DB_PATH", str(path))
    return path


async def test_a_database_is_described_and_read(mode: str, shop: Path) -> None:
    client = MockClient(era=mode)
    assert (await client.call(sqlite.list_tables)).data == ["goods"]
    assert (await client.call(sqlite.describe_table, table="goods")).data == [
        {"name": "name", "type": "TEXT", "key": 1},
        {"name": "euros", "type": "REAL", "key": 0},
    ]
    assert (await client.call(sqlite.read_query, sql="select * from goods")).data == [{"name": "bread", "euros": 3.2}]


async def test_a_database_is_not_written_to(mode: str, shop: Path) -> None:
    client = MockClient(era=mode)
    assert (await client.call(sqlite.read_query, sql="delete from goods")).is_error
    assert (await client.call(sqlite.describe_table, table="orders")).is_error
    assert (await client.call(sqlite.read_query, sql="select count(*) as n from goods")).data == [{"n": 1}]


# todo


async def test_items_are_added_completed_and_removed(mode: str) -> None:
    async with connected(todo.server, mode, on_elicit=lambda _question: accept()) as client:
        for text in ("buy bread", "call Ann"):
            await client.call_tool("add", {"text": text})
        await client.call_tool("complete", {"number": 1})
        assert (await client.get_prompt("plan", {"day": "Monday"})).messages[0].content.text.endswith("- call Ann")
        assert (await client.call_tool("clear")).text == "Removed 1 items."
        assert (await client.read_resource("todo://items")).text == '[{"number":2,"text":"call Ann","done":false}]'
        assert (await client.call_tool("complete", {"number": 1})).is_error


async def test_nothing_is_removed_without_consent(mode: str) -> None:
    assert (await MockClient(elicits=[decline()], era=mode).call(todo.clear)).text == "Nothing was removed."


async def test_each_user_has_a_list() -> None:
    lists: todo.Lists
    async with todo.lifespan(todo.server) as lists:
        assert lists["ann"] is lists["ann"] is not lists["bob"]


# file search


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A client's folder, with a link that leads out of it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.py").write_text("import trio\nprint(1)\n")
    (tmp_path / "secret.py").write_text("import trio  # secret\n")
    (folder / "link.py").symlink_to(tmp_path / "secret.py")
    return folder


async def test_files_are_found_searched_and_read(mode: str, folder: Path) -> None:
    client = MockClient(roots=[folder], era=mode)
    found = str(folder / "a.py")
    assert (await client.call(file_search.find_files, pattern="*.py")).data == [found]
    assert (await client.call(file_search.search_text, text="trio")).data == [
        {"path": found, "line": 1, "text": "import trio"}
    ]
    (block,) = (await client.call(file_search.read_file, path=found)).content
    assert block.resource.text == "import trio\nprint(1)\n"


@pytest.mark.parametrize("path", ["../secret.py", "link.py", "missing.py", "."])
async def test_only_files_in_the_clients_folders_are_read(path: str, mode: str, folder: Path) -> None:
    result = await MockClient(roots=[folder], era=mode).call(file_search.read_file, path=str(folder / path))
    assert result.is_error


# elicitation


async def test_every_kind_of_form_is_answered(mode: str) -> None:
    async def call(tool: object, *answers: object, **arguments: object) -> object:
        return (await MockClient(elicits=answers, era=mode).call(tool, **arguments)).data

    assert await call(elicitation.greet, "Ann") == "Hello, Ann!"
    assert await call(elicitation.greet, decline()) == "Hello!"
    assert await call(elicitation.greet, dismiss()) == "The question was closed."
    assert await call(elicitation.order, "tea", "s", "oat") == "tea, s, milk: oat"
    assert await call(elicitation.create_task, {"title": "Write"}) == {"title": "Write", "priority": "medium"}
    meeting = {"topic": "Budget", "minutes": 45, "online": True}
    assert await call(elicitation.plan_meeting, meeting, {}) == meeting
    assert await call(elicitation.plan_meeting, meeting, decline()) is None
    assert await call(elicitation.toppings, ["ham", "olives"]) == ["ham", "olives"]
    assert await call(elicitation.guess, 50, 25, 37, number=37) == "Right, after 3 attempts."


async def test_a_strict_question_that_is_declined_ends_the_tool(mode: str) -> None:
    assert (await MockClient(elicits=["tea", decline()], era=mode).call(elicitation.order)).is_error


# sampling


async def test_the_clients_model_writes(mode: str) -> None:
    client = MockClient(samples=["Short."], era=mode)
    assert (await client.call(sampling.summarize, text="A long text.")).text == "Short."
    client = MockClient(samples=["one", "two", "three"], era=mode)
    assert (await client.call(sampling.refine, topic="rain")).data == ["one", "two", "three"]
    assert len(client.questions[-1].params.messages) == 5
    client = MockClient(samples=lambda params: params.messages[0].content.text.split()[2], era=mode)
    translated = await client.call(sampling.translate, text="Hi", languages=["French", "Thai"])
    assert translated.data == {"French": "French:", "Thai": "Thai:"}


@pytest.mark.parametrize(
    ("samples", "text"),
    [(["Positive."], "positive"), (["Hm", "negative"], "negative"), (["Hm", "Hm"], "The model did not decide.")],
)
async def test_a_mood_is_one_of_three(samples: list[str], text: str, mode: str) -> None:
    assert (await MockClient(samples=samples, era=mode).call(sampling.classify, text="Well")).text == text


async def test_a_client_without_a_model_does_not_get_the_tools(mode: str) -> None:
    async with connected(sampling.server, mode) as client:
        listed = await client.list_tools()
    assert len(listed) == (0 if mode == "legacy" else 4)


# long-running


async def test_a_conversion_reports_each_file(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    client = MockClient(era=mode)
    result = await client.call(long_running.convert, files=["a", "b"])
    assert result.text == "2 files were converted."
    assert [(report.progress, report.total, report.message) for report in client.progress] == [
        (0, 2, "converting a"),
        (1, 2, "converting b"),
        (2, 2, "done"),
    ]


async def test_a_silent_tool_reports_by_itself(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    reports: list[ProgressNotificationParams] = []
    async with connected(long_running.server, mode, bound=60) as client:
        result = await client.call_tool("index", on_progress=reports.append)
    assert result.text == "Indexed."
    assert [report.is_heartbeat for report in reports] == [True] * 3


async def test_the_heartbeats_of_a_silent_tool_are_not_among_its_reports(
    mode: str, autojump_clock: trio.testing.MockClock
) -> None:
    client = MockClient(era=mode)
    assert (await client.call(long_running.index)).text == "Indexed."
    assert client.progress == []


async def test_a_conversion_that_is_cancelled_cleans_up(mode: str) -> None:
    async with connected(long_running.server, mode) as client:
        started = trio.Event()

        def on_progress(_report: ProgressNotificationParams) -> None:
            started.set()

        async def convert() -> None:
            await client.call_tool("convert", {"files": ["a"] * 100}, on_progress=on_progress)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(convert)
            await started.wait()
            assert (await client.call_tool("status")).data == {"running": ["convert"], "cancelled": []}
            nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        assert (await client.call_tool("status")).data == {"running": [], "cancelled": ["convert"]}
