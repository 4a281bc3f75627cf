"""`trio-mcp dev` as a process: a file is saved, sessions stay, and new calls use the new code; over HTTP and on stdio."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from command import COMMAND, ENVIRONMENT, SECONDS, Person, refused
from crew import gone
from developing import APP, MODES, Child, children, on_stdio, over_http, save_under_load, shown, write_project
from talk import modern_meta
from waiting import until
from wire_terms import headers_of

from trio_mcp import Client, accept
from trio_mcp.errors import McpError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_project(tmp_path)


TASK = """\
@server.tool(task=True)
async def work() -> str:
    import pathlib, trio
    while not pathlib.Path(__file__).with_name("go on").exists():
        await trio.sleep(0.05)
    return f"{VERSION} worked"

"""


class User:
    """Answers a question when the test says so, and keeps what calls return."""

    def __init__(self) -> None:
        self.asked, self.answers = trio.Event(), trio.Event()
        self.texts: list[str] = []

    async def __call__(self, _question: object) -> object:
        self.asked.set()
        await self.answers.wait()
        return accept(value=True)

    async def ask(self, client: Client) -> None:
        self.texts.append((await client.call_tool("ask")).text)

    async def show(self, client: Client) -> None:
        self.texts.append(await shown(client))


wires = pytest.mark.parametrize("serve", [over_http, on_stdio], ids=["http", "stdio"])
eras = pytest.mark.parametrize("mode", MODES)


@wires
@eras
async def test_a_client_stays_connected_while_the_code_changes_and_fails_and_recovers(
    serve: Any, mode: str, folder: Path
) -> None:
    async with serve(folder) as (child, connect), connect(mode) as client:
        assert await shown(client) == "one a"
        child.edit('"one"', '"two"')
        await child.says("reloaded app.py")
        assert await shown(client) == "two a"
        child.write("neighbour.py", "TEXT = 'b'\n")
        await child.says("reloaded neighbour.py")
        assert await shown(client) == "two b"
        child.write("neighbour.py", "TEXT = 'c\n")
        await child.says("the old code stays")
        assert "neighbour.py, line 1" in await child.says("line 1")
        await child.says("SyntaxError")
        assert await shown(client) == "two b"
        child.write("neighbour.py", "TEXT = 'd'\n")
        await child.says("reloaded neighbour.py")
        assert await shown(client) == "two d"
        child.edit('version="1"', 'version="2"')
        assert "version" in await child.says("learn of this when they connect again")
        assert client.server_info.version == "1"


@wires
async def test_a_call_that_waits_for_its_user_ends_with_its_code_and_lifespan_and_others_use_the_new_code(
    serve: Any, folder: Path
) -> None:
    user = User()
    async with serve(folder) as (child, connect), connect("modern", on_elicit=user) as client:
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(user.ask, client)
                await user.asked.wait()
                child.edit('"one"', '"two"')
                await child.says("opened two")
                await child.says("reloaded app.py")
                assert await shown(client) == "two a"
                user.answers.set()
        await child.says("closed one")
        assert user.texts == ["one one accept"]


@wires
async def test_the_next_request_of_a_legacy_session_waits_for_its_calls_and_gets_the_new_code(
    serve: Any, folder: Path
) -> None:
    user = User()
    async with serve(folder) as (child, connect), connect("legacy", on_elicit=user) as client:
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(user.ask, client)
                await user.asked.wait()
                child.edit('"one"', '"two"')
                assert "1 call goes on with the old code" in await child.says("reloaded app.py")
                nursery.start_soon(user.show, client)
                await trio.sleep(0.5)
                assert user.texts == []
                user.answers.set()
        await child.says("closed one")
        assert user.texts == ["one one accept", "two a"]


async def test_a_call_of_one_legacy_session_holds_up_no_other_session(folder: Path) -> None:
    user = User()
    async with (
        over_http(folder) as (child, connect),
        connect("legacy", on_elicit=user) as busy,
        connect("legacy") as client,
    ):
        assert await shown(client) == "one a"
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(busy.call_tool, "ask")
                await user.asked.wait()
                child.edit('"one"', '"two"')
                await child.says("reloaded app.py")
                assert await shown(client) == "two a"
                user.answers.set()


async def test_a_task_ends_with_its_code_and_shows_its_result_to_clients_of_the_new_code(folder: Path) -> None:
    text = APP.replace("@server.prompt", TASK + "@server.prompt")
    (folder / "app.py").write_text(text)
    async with over_http(folder) as (child, connect), connect("modern") as client:
        started = await client.start_tool("work")
        child.edit('"one"', '"two"')
        assert "1 call goes on with the old code" in await child.says("reloaded app.py")
        (folder / "go on").touch()
        await child.says("closed one")
        with trio.fail_after(SECONDS):
            assert (await client.task(started.id).result()).text == "one worked"


@eras
async def test_a_client_over_websocket_connects_again_and_uses_the_new_code(mode: str, folder: Path) -> None:
    urls: list[str] = []
    async with over_http(folder, urls=urls) as (child, _):
        async with Client.connect(urls[0].replace("http:", "ws:"), mode=mode) as client:  # type: ignore[arg-type]
            assert await shown(client) == "one a"
            child.edit('"one"', '"two"')
            await child.says("closed one")
            assert await shown(client) == "two a"


async def test_a_host_is_served_whatever_proxy_the_environment_names(folder: Path) -> None:
    async with on_stdio(folder, env={"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"}) as (
        _,
        connect,
    ):
        async with connect("legacy") as client:
            assert await shown(client) == "one a"


async def test_the_processes_end_when_the_command_is_killed(folder: Path) -> None:
    command = [*COMMAND, "dev", str(folder / "app.py"), "--port", "0", "--drain", "1"]
    process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE, env=ENVIRONMENT, cwd=folder)
    assert process.stderr is not None
    async with process.stderr:
        await Child(folder, process.stderr).says("serves MCP at")
        await until(lambda: len(children(process.pid)) == 2, SECONDS)
        left = children(process.pid)
        process.kill()
        await process.wait()
        await gone(left)


@wires
@eras
async def test_a_client_is_notified_of_the_list_that_has_changed(serve: Any, mode: str, folder: Path) -> None:
    async with serve(folder) as (child, connect), connect(mode) as client:
        with trio.fail_after(SECONDS):
            async with client.listen(tools=True, prompts=True) as changes:
                child.edit("async def show", "async def reveal")
                await child.says("tools changed")
                assert (await anext(aiter(changes))).kind == "tools"
                assert [tool.name for tool in await client.list_tools()] == ["reveal", "ask"]


BROKEN = {
    "raises": ("1 / 0\n", "ZeroDivisionError"),
    "exits": ("raise SystemExit(3)\n", "SystemExit"),
    "dies": ("import os; os._exit(7)\n", "ended with status 7"),
    "bytes": ("\0", "null bytes"),
    "no server": ("del server\n", "no Server"),
    "lifespan": (
        "@asynccontextmanager\nasync def fail(_):\n    raise OSError('none')\n    yield\nserver = Server('x', lifespan=fail)\n",
        "OSError: none",
    ),
    "proxy": ("from trio_mcp import proxy\nserver = proxy('http://a.example/mcp')\n", "Proxy"),
}


async def test_what_cannot_be_served_is_shown_and_the_old_code_stays(folder: Path) -> None:
    async with over_http(folder) as (child, connect), connect("modern") as client:
        for text, named in BROKEN.values():
            child.write("app.py", APP + text)
            await child.says("the old code stays")
            await child.says(named)
            assert await shown(client) == "one a"
        child.write("app.py", APP.replace('"one"', '"two"'))
        await child.says("reloaded app.py")
        assert await shown(client) == "two a"


async def test_an_import_that_hangs_is_given_up_when_the_file_is_saved_again(folder: Path) -> None:
    async with over_http(folder) as (child, connect), connect("modern") as client:
        child.write("neighbour.py", "import sys, time\nprint('hangs', file=sys.stderr)\ntime.sleep(1000)\n")
        await child.says("hangs")
        assert await shown(client) == "one a"
        child.write("neighbour.py", "TEXT = 'b'\n")
        await child.says("reloaded neighbour.py")
        assert await shown(client) == "one b"


@pytest.mark.parametrize("is_folder", [True, False])
async def test_a_file_that_is_gone_leaves_the_old_code_until_it_is_back(folder: Path, is_folder: bool) -> None:
    async with over_http(folder) as (child, connect), connect("modern") as client:
        child.app.unlink()
        if is_folder:
            child.app.mkdir()
        await child.says("the old code stays")
        assert await shown(client) == "one a"
        if is_folder:
            child.app.rmdir()
        child.write("app.py", APP.replace('"one"', '"two"'))
        await child.says("reloaded app.py")
        assert await shown(client) == "two a"


async def test_a_server_that_dies_is_started_again(folder: Path) -> None:
    (folder / "app.py").write_text(
        APP.replace(
            "@server.prompt", "@server.tool\nasync def die() -> None:\n    import os; os._exit(9)\n\n@server.prompt"
        )
    )
    async with over_http(folder) as (child, connect):
        for _ in range(2):
            async with connect("modern") as client:
                with pytest.raises(McpError):
                    await client.call_tool("die")
            await child.says("ended with status 9: it is started again")
        async with connect("modern") as client:
            assert await shown(client) == "one a"


GUARDED = """
from trio_mcp import HttpOptions

async def authenticate(headers):
    return "ann" if headers.get("authorization") == "Bearer KEY" else None

server = Server("app", version="1", http=HttpOptions(authenticate=authenticate))

@server.tool
async def show() -> str:
    return f"{VERSION} guarded"
"""


async def answered(url: str, key: str | None = None) -> int:
    """The status of a request with this key."""
    params = {"_meta": modern_meta()}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
    headers = {"accept": "application/json, text/event-stream", **headers_of("tools/list", params)}
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        given = {} if key is None else {"authorization": f"Bearer {key}"}
        return (await http.post(url, json=message, headers=headers | given)).status_code


async def test_a_file_that_begins_or_changes_to_authenticate_is_never_served_open_and_one_that_ceases_is_not_reloaded(
    folder: Path,
) -> None:
    urls: list[str] = []

    async with over_http(folder, urls=urls) as (child, _):
        assert await answered(urls[0]) == 200
        child.write("app.py", APP + GUARDED.replace("KEY", "first"))
        await child.says("reloaded app.py")
        assert [await answered(urls[0], key) for key in (None, "wrong", "first")] == [401, 401, 200]
        child.edit("Bearer first", "Bearer second")
        await child.says("reloaded app.py")
        assert [await answered(urls[0], key) for key in (None, "first", "second")] == [401, 401, 200]
        child.write("app.py", APP)
        await child.says("the old code stays")
        assert "not served open" in await child.says("authenticates")
        assert [await answered(urls[0], key) for key in (None, "second")] == [401, 200]


ROUTE = """
from trio_mcp import HttpResponse

@server.route("/hello")
async def hello(request):
    return HttpResponse("hi")
"""


async def test_routes_settings_and_modules_from_elsewhere_are_new_with_the_next_reload(folder: Path) -> None:
    elsewhere, project = folder / "elsewhere", folder / "project"
    for each in (elsewhere, project):
        each.mkdir()
    (elsewhere / "library.py").write_text("TEXT = 'old'\n")
    text = APP.replace("import neighbour", "import library as neighbour")
    (project / "app.py").write_text(text)
    urls: list[str] = []
    paths = {"PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{elsewhere}"}
    async with over_http(project, urls=urls, env=paths) as (child, connect), connect("modern") as client:
        (elsewhere / "library.py").write_text("TEXT = 'new'\n")
        assert await shown(client) == "one old"
        child.write("app.py", text + ROUTE)
        await child.says("reloaded app.py")
        assert await shown(client) == "one new"
        async with httpx2.AsyncClient(timeout=SECONDS) as http:
            assert (await http.get(urls[0].removesuffix("/mcp") + "/hello")).text == "hi"


async def test_a_module_that_a_tool_imports_late_counts_from_then_on(folder: Path) -> None:
    (folder / "app.py").write_text(
        APP.replace("import neighbour\n", "").replace("    return f", "    import neighbour\n    return f", 1)
    )
    async with over_http(folder) as (child, connect), connect("modern") as client:
        assert await shown(client) == "one a"
        child.write("neighbour.py", "TEXT = 'b'\n")
        await child.says("reloaded neighbour.py")
        assert await shown(client) == "one b"


async def test_two_versions_of_one_moment_are_distinguished_and_no_bytecode_is_written(folder: Path) -> None:
    async with over_http(folder) as (child, connect), connect("modern") as client:
        for number in range(3):
            status = child.app.stat()
            child.app.write_text(APP.replace('"one"', f'"{number}ne"'))
            os.utime(child.app, ns=(status.st_atime_ns, status.st_mtime_ns))
            await child.says("reloaded app.py")
            assert await shown(client) == f"{number}ne a"
    assert not (folder / "__pycache__").exists()


async def test_what_a_tool_prints_shows_and_a_breakpoint_stops_at_the_terminal(folder: Path) -> None:
    text = APP.replace("    return f", "    print('from the tool')\n    breakpoint()\n    return f", 1)
    (folder / "app.py").write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Person("dev", str(folder / "app.py"), "--port", str(port), "--drain", "1") as person:
        person.sees("serves MCP at")
        async with Client.connect(f"http://127.0.0.1:{port}/mcp", mode="modern") as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(shown, client)
                for seen in ("from the tool", "(Pdb)"):
                    await trio.to_thread.run_sync(person.sees, seen)
                person.enters("continue")
        person.presses("\x03")
        assert await trio.to_thread.run_sync(person.waits) == 0


async def test_a_host_that_leaves_in_the_middle_of_a_reload_leaves_no_process(folder: Path) -> None:
    async with on_stdio(folder) as (child, connect):
        async with connect("legacy") as client:
            assert await shown(client) == "one a"
            child.write("neighbour.py", "import sys, time\nprint('hangs', file=sys.stderr)\ntime.sleep(1000)\n")
            await child.says("hangs")
            left = children(child.pid)
        with trio.fail_after(SECONDS):
            await gone({child.pid, *left})


async def test_saves_under_four_clients_that_call_without_a_pause_fail_no_call(folder: Path) -> None:
    """A few: each starts a process, and `make long` saves hundreds of times."""
    await save_under_load(folder, 6)


async def test_many_saves_in_a_row_end_with_the_last_version(folder: Path) -> None:
    async with over_http(folder) as (child, connect), connect("modern") as client:
        for number in range(30):
            child.write("neighbour.py", f"TEXT = {number}\n")
            await trio.lowlevel.checkpoint()
        with trio.fail_after(SECONDS):
            while await shown(client) != "one 29":
                await child.says("reloaded neighbour.py")


@pytest.mark.parametrize(
    "broken",
    ["1 / 0\n", "def (:\n", "import not_there_yet\n", "x = 1\n"],
    ids=["raises", "syntax", "import", "no server"],
)
async def test_a_file_that_cannot_be_loaded_at_the_start_is_served_when_it_can(broken: str, folder: Path) -> None:
    (folder / "app.py").write_text(broken)

    async def mend(child: Child) -> None:
        await child.says("cannot be loaded")
        child.write("app.py", APP)

    async with over_http(folder, before=mend) as (child, connect), connect("modern") as client:
        assert await shown(client) == "one a"
        child.edit('"one"', '"two"')
        await child.says("reloaded app.py")
        assert await shown(client) == "two a"


async def test_a_neighbour_that_is_missing_at_the_start_is_found_when_it_is_there(folder: Path) -> None:
    (folder / "neighbour.py").unlink()

    async def mend(child: Child) -> None:
        await child.says("No module named 'neighbour'")
        child.write("neighbour.py", "TEXT = 'new'\n")

    async with over_http(folder, before=mend) as (_, connect), connect("legacy") as client:
        assert await shown(client) == "one new"


async def test_a_host_is_answered_as_soon_as_the_file_can_be_loaded(folder: Path) -> None:
    (folder / "app.py").write_text("def (:\n")
    async with on_stdio(folder) as (child, connect), trio.open_nursery() as nursery:

        async def mend() -> None:
            await child.says("SyntaxError")
            child.write("app.py", APP)

        nursery.start_soon(mend)
        async with connect("legacy") as client:
            assert await shown(client) == "one a"


@pytest.mark.parametrize(
    ("mode", "number", "status"),
    [
        ("http", signal.SIGINT, 0),
        ("http", signal.SIGTERM, 0),
        ("http", signal.SIGHUP, 0),
        ("stdio", signal.SIGINT, 130),
        ("stdio", signal.SIGTERM, 0),
        ("stdio", None, 0),
    ],
)
async def test_waiting_for_a_file_ends_by_a_signal_or_with_its_host(
    mode: str, number: signal.Signals | None, status: int, folder: Path
) -> None:
    (folder / "app.py").write_text("def (:\n")
    command = [*COMMAND, "dev", str(folder / "app.py"), *(["--stdio"] if mode == "stdio" else ["--port", "0"])]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, cwd=folder
    )
    assert process.stderr is not None
    assert process.stdin is not None
    async with process.stderr, process.stdin:
        try:
            await process.stdin.send_all(b"a request that came before it left\n")
            await Child(folder, process.stderr).says("waiting for a change")
            if number is None:
                await process.stdin.aclose()
            else:
                process.send_signal(number)
            with trio.fail_after(SECONDS):
                assert await process.wait() == status
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()


def test_what_is_not_there_at_all_is_refused(folder: Path) -> None:
    refused(3, "dev", str(folder / "none.py"))
    refused(3, "dev", "no_such_package.server")
    # No host that could leave.
    (folder / "app.py").write_text("1 / 0\n")
    assert "ZeroDivisionError" in refused(3, "dev", str(folder / "app.py"), "--stdio")


async def test_what_a_module_prints_does_not_reach_the_host(folder: Path) -> None:
    (folder / "neighbour.py").write_text("print('not for the host')\nTEXT = 'a'\n")
    async with on_stdio(folder) as (child, connect), connect("legacy") as client:
        child.edit('"one"', '"two"')
        await child.says("not for the host")
        await child.says("reloaded app.py")
        assert await shown(client) == "two a"
