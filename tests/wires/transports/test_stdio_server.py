"""The stdio transport as a server: a real process, its descriptors and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from serving import IMPORTS, Child, all_of, child, line_of

SCRIPT = Path(__file__).with_name("stdio_app.py")
APP = [sys.executable, "-X", "dev", "-W", "error", str(SCRIPT)]
ENVIRONMENT = {**os.environ, **IMPORTS}
PATIENCE = 20.0


def request(method: str, id: int = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": {"n": id}}).encode() + b"\n"


def echo(id: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":{"n":%d}}' % (id, id)


async def run(*lines: bytes, command: list[str] = APP) -> subprocess.CompletedProcess[bytes]:
    """Run the app on these lines, to its end."""
    with trio.fail_after(PATIENCE):
        return await trio.run_process(
            command, stdin=b"".join(lines), capture_stdout=True, capture_stderr=True, check=False, env=ENVIRONMENT
        )


def started(**options: float) -> AbstractAsyncContextManager[Child]:
    """The app as a process that goes on."""
    return child(SCRIPT, json.dumps(options))


async def serving(app: Child) -> None:
    """Return when the app is known to serve."""
    await app.send(request("echo", 1))
    assert await app.line() == echo(1)


async def busy(app: Child, method: str) -> None:
    """Return when the app runs this method, which does not return."""
    await serving(app)
    await app.send(request(method, 2))
    assert await app.error_line() == b"busy"


# The wire


async def test_requests_are_answered_and_the_end_of_stdin_ends_the_process_quietly() -> None:
    done = await run(request("echo", 1), request("echo", 2))
    assert done.returncode == 0
    assert done.stdout.splitlines() == [echo(1), echo(2), b"after serving"]
    assert done.stderr == b"cleaned up\n"


async def test_a_byte_order_mark_before_the_first_line_is_skipped() -> None:
    done = await run(b"\xef\xbb\xbf", request("echo", 1))
    assert done.stdout.splitlines()[0] == echo(1)


async def test_prints_of_a_tool_and_its_children_go_to_stderr() -> None:
    done = await run(request("noise", 1))
    assert done.stdout.splitlines() == [echo(1), b"after serving"]
    assert done.stderr.splitlines() == [b"from print", b"from fd 1", b"from a child", b"cleaned up"]


async def test_children_do_not_inherit_the_private_descriptors() -> None:
    done = await run(request("inherited", 1))
    assert done.stdout.splitlines()[0] == b'{"jsonrpc":"2.0","id":1,"result":{"is":0}}'


async def test_stdin_and_stdout_may_be_files(tmp_path: Path) -> None:
    source, target = tmp_path / "requests.jsonl", tmp_path / "out"
    source.write_bytes(b"".join(request("echo", id) for id in range(1, 1001)))
    with source.open("rb") as stdin, target.open("wb") as stdout, trio.fail_after(PATIENCE):
        done = await trio.run_process(APP, stdin=stdin, stdout=stdout, env=ENVIRONMENT)
    assert done.returncode == 0
    assert target.read_bytes().splitlines() == [echo(id) for id in range(1, 1001)] + [b"after serving"]


async def test_stdin_and_stdout_may_be_one_socket() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        process = await trio.lowlevel.open_process(APP, stdin=theirs, stdout=theirs, env=ENVIRONMENT)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    async with stream:
        with trio.fail_after(PATIENCE):
            await stream.send_all(request("echo", 1))
            await stream.send_eof()
            assert (await all_of(stream)).splitlines() == [echo(1), b"after serving"]
            assert await process.wait() == 0


async def test_stdin_may_be_a_terminal() -> None:
    controller, terminal = os.openpty()
    try:
        process = await trio.lowlevel.open_process(
            [*APP], stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT
        )
        os.write(controller, request("echo", 1) + b"\x04")  # ctrl-D
        with trio.fail_after(PATIENCE):
            assert (await all_of(process.stdout)).splitlines() == [echo(1), b"after serving"]
            assert await process.wait() == 0
        assert os.get_blocking(terminal)
    finally:
        os.close(controller)
        os.close(terminal)


async def test_a_stderr_that_shares_the_pipe_with_stdout_stays_blocking() -> None:
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            APP, stdin=request("stderr is blocking", 1), capture_stdout=True, stderr=subprocess.STDOUT, env=ENVIRONMENT
        )
    assert b'{"jsonrpc":"2.0","id":1,"result":{"is":true}}' in done.stdout.splitlines()


@pytest.mark.parametrize(("closed", "name"), [("<&-", b"stdin"), (">&-", b"stdout")])
async def test_a_closed_stdin_or_stdout_is_refused_with_its_name(closed: str, name: bytes) -> None:
    done = await run(command=["sh", "-c", f'exec "$0" "$@" {closed}', *APP])
    assert done.returncode != 0
    assert name + b" is closed" in done.stderr


async def test_a_closed_stderr_does_not_affect_the_server() -> None:
    done = await run(request("noise", 1), command=["sh", "-c", 'exec "$0" "$@" 2>&-', *APP])
    assert done.returncode == 0
    assert done.stdout.splitlines() == [echo(1), b"after serving"]


# How it ends


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)])
async def test_a_signal_cancels_what_runs_and_ends_the_process(number: signal.Signals, status: int) -> None:
    async with started() as app:
        await busy(app, "hang")
        app.process.send_signal(number)
        assert await app.end() == status
        assert await app.errors() == b"cleaned up\n"


async def test_a_second_signal_ends_the_process_at_once() -> None:
    async with started(shutdown_grace=3600) as app:
        await busy(app, "shield")
        app.process.send_signal(signal.SIGTERM)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(press_again, app)
            assert await app.end() == 1
            nursery.cancel_scope.cancel()
        assert b"a second signal came" in await app.errors()


async def press_again(app: Child) -> None:
    """Interrupt again and again: an interrupt that comes right behind the first signal repeats it."""
    while True:
        await trio.sleep(0.1)
        app.process.send_signal(signal.SIGINT)


async def test_a_signal_that_a_wrapper_forwards_as_well_leaves_the_clean_up_its_time() -> None:
    async with started() as app:
        await busy(app, "hang")
        app.process.send_signal(signal.SIGTERM)
        app.process.send_signal(signal.SIGHUP)
        assert await app.end() == 0
        assert await app.errors() == b"cleaned up\n"


async def test_a_closed_stdout_ends_the_process() -> None:
    async with started() as app:
        await serving(app)
        await app.stdout.aclose()
        await app.send(request("echo", 2))
        assert await app.error_line() == b"broken: the peer closed its end of the connection"


async def test_a_client_that_does_not_read_ends_the_process_after_the_write_deadline() -> None:
    async with started(write_deadline=0.3) as app:
        await serving(app)
        await app.send(request("big", 2))
        assert await app.error_line() == b"broken: the peer did not read for 0.3 s"


@dataclass
class Orphan:
    """A server whose parent is another process, while the test holds its pipes. Its end shows as the end of its stderr."""

    parent: trio.Process
    stdin: trio.lowlevel.FdStream
    stdout: trio.lowlevel.FdStream
    stderr: trio.lowlevel.FdStream

    async def lose_parent(self) -> None:
        self.parent.kill()
        await self.parent.wait()


@asynccontextmanager
async def orphan(*command: str) -> AsyncIterator[Orphan]:
    stdin, to_server = os.pipe()
    from_server, stdout = os.pipe()
    stderr_end, stderr = os.pipe()
    with contextlib.ExitStack() as inherited:
        for fd in (stdin, stdout, stderr):
            inherited.callback(os.close, fd)
        parent = await trio.lowlevel.open_process(
            [sys.executable, "-S", "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *command],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=ENVIRONMENT,
        )
    async with (
        trio.lowlevel.FdStream(to_server) as stdin_stream,
        trio.lowlevel.FdStream(from_server) as stdout_stream,
        trio.lowlevel.FdStream(stderr_end) as stderr_stream,
    ):
        with trio.fail_after(PATIENCE):
            yield Orphan(parent, stdin_stream, stdout_stream, stderr_stream)


async def test_the_death_of_the_parent_is_noticed_although_stdin_stays_open() -> None:
    async with orphan(*APP) as server:
        await server.stdin.send_all(request("echo", 1))
        assert await line_of(server.stdout) == echo(1)
        await server.lose_parent()
        with trio.fail_after(5):
            assert await all_of(server.stderr) == b"cleaned up\n"


async def test_the_death_of_the_parent_is_noticed_although_a_tool_blocks_the_loop() -> None:
    async with orphan(*APP, json.dumps({"shutdown_grace": 0.2})) as server:
        await server.stdin.send_all(request("block", 1))
        assert await line_of(server.stderr) == b"busy"
        await server.lose_parent()
        with trio.fail_after(5):
            assert b"the process did not end in time" in await all_of(server.stderr)


async def test_what_stands_in_the_pipe_at_its_hang_up_is_served_however_long_that_takes() -> None:
    """The hang-up alone does not begin the grace."""
    done = await run(request("slow", 1), request("echo", 2), command=[*APP, json.dumps({"shutdown_grace": 0.2})])
    assert done.returncode == 0
    assert done.stdout.splitlines() == [echo(1), echo(2), b"after serving"]


def test_an_empty_stdin_that_is_no_pipe_ends_the_server() -> None:
    """As under a service manager or a container without input: epoll refuses /dev/null."""
    code = "from trio_mcp import Server; Server('idle').run()"
    ended = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
