"""The stdio transport as a client: real child processes, well and badly behaved.

Each child gets a pipe of the test as its stderr. All that it starts inherits it, so the end of that pipe says that no
process is left, without asking for process ids.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from naming import unnamed
from peer import is_malformed, message_of

from trio_mcp.session import Envelope
from trio_mcp_transports.stdio import ProcessChannel, connect

PATIENCE = 20.0
GRACE = 0.3

ECHO = "for line in sys.stdin: print(line, end='', flush=True)"
READY = """print('{"jsonrpc":"2.0","method":"ready"}', flush=True)"""
DEAF = f"{READY}; time.sleep(3600)"
STUBBORN = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {DEAF}"
POLITE = f"signal.signal(signal.SIGTERM, lambda *_: os._exit(1)); {READY}; sys.stdin.read(); sys.exit(7)"
# A grandchild that ignores SIGTERM and keeps every pipe open, whatever its parent does.
GRANDCHILD = f"subprocess.Popen([sys.executable, '-S', '-c', {'import signal, sys, time; ' + STUBBORN!r}])"
FLOOD = """while True: print('{"jsonrpc":"2.0","method":"flood"}')"""
REPORT = """print(json.dumps({"jsonrpc": "2.0", "method": "report", "params": {
    "argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(),
    "leads": os.getsid(0) == os.getpgrp() == os.getpid(),
}}), flush=True)"""


def python(script: str, *arguments: str) -> list[str]:
    imports = "import json, os, signal, subprocess, sys, time"
    return [sys.executable, "-S", "-c", f"{imports}\n{script}", *arguments]


IS_READY = message_of({"method": "ready"})
PING = message_of({"id": 1, "method": "ping"})


class Child:
    """A connected child."""

    def __init__(self, channel: ProcessChannel, stderr: trio.abc.ReceiveStream) -> None:
        self.channel = channel
        self._stderr = stderr

    async def receive(self) -> Any:
        return (await self.channel.receive()).message

    async def ready(self) -> None:
        assert await self.receive() == IS_READY

    async def gone(self) -> None:
        """Wait until neither the child nor anything it started is left."""
        async for _ in self._stderr:
            pass


async def report_of(*arguments: str, **options: Any) -> Any:
    """What a child says of what it was given."""
    async with child(REPORT, *arguments, **options) as reporter:
        report = await reporter.receive()
    return report.params


@asynccontextmanager
async def child(
    script: str, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, max_line: int = 100_000
) -> AsyncIterator[Child]:
    """Connect to a child. When the connection is closed no process may be left, and the child was waited for."""
    with trio.fail_after(PATIENCE):
        ours, theirs = os.pipe()
        async with trio.lowlevel.FdStream(ours) as stderr:
            try:
                async with connect(
                    python(script, *arguments), env=env, cwd=cwd, stderr=theirs, shutdown_grace=GRACE, max_line=max_line
                ) as channel:
                    os.close(theirs)
                    theirs = -1
                    yield Child(channel, stderr)
            finally:
                if theirs >= 0:
                    os.close(theirs)
                with trio.CancelScope(shield=True):
                    async for _ in stderr:
                        pass
            assert channel.process.returncode is not None


# A connection


async def test_messages_go_to_the_child_and_come_back() -> None:
    async with child(ECHO) as echo:
        for id in range(3):
            ping = message_of({"id": id, "method": "ping", "params": {"text": "a\u2028b\nc"}})
            await echo.channel.send(Envelope(ping))
            assert await echo.receive() == ping
    assert echo.channel.process.returncode == 0


async def test_a_byte_order_mark_before_the_first_line_of_a_child_is_skipped() -> None:
    script = f"sys.stdout.buffer.write(bytes([0xEF, 0xBB, 0xBF])); {READY}; time.sleep(3600)"
    async with child(script) as talker:
        await talker.ready()


async def test_a_child_that_floods_its_stdout_is_received_and_ended() -> None:
    async with child(FLOOD) as flood:
        for _ in range(100):
            assert await flood.receive() == message_of({"method": "flood"})


async def test_a_child_that_closes_its_stdout_ends_receive_and_may_still_be_sent_to() -> None:
    async with child("sys.stdout.close(); os.close(1); sys.stdin.read()") as silent:
        with pytest.raises(trio.EndOfChannel):
            await silent.receive()
        await silent.channel.send(Envelope(IS_READY))
        assert silent.channel.outcome is None


async def test_what_a_child_says_on_stderr_is_no_failure() -> None:
    said = "print('Traceback: all is lost', file=sys.stderr, flush=True); os.write(2, bytes(range(256)) * 100)"
    async with child(f"{said}\n{ECHO}") as noisy:
        await noisy.channel.send(Envelope(PING))
        assert await noisy.receive() == PING
        assert noisy.channel.outcome is None
    assert noisy.channel.process.returncode == 0


# What the child is given


async def test_the_arguments_arrive_as_they_are_because_no_shell_sees_them() -> None:
    arguments = ["two words", "$HOME", "; exit 1", "'", '"', "*", "", "ü"]
    assert (await report_of(*arguments))["argv"] == arguments


async def test_the_environment_is_the_allow_list_and_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_TOKEN", "PYTHONPATH", "LD_LIBRARY_PATH", "HOMESICK"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("TERM", "dumb")
    environment = (await report_of(env={"GIVEN": "yes", "TERM": "given"}))["env"]
    assert (environment["GIVEN"], environment["TERM"], environment["LC_TIME"]) == ("yes", "given", "C")
    assert environment["PATH"] == os.environ["PATH"]
    assert "secret" not in environment.values()


async def test_the_child_leads_a_new_session_in_the_given_directory(tmp_path: Path) -> None:
    tmp_path = Path(os.path.realpath(tmp_path))  # noqa: ASYNC240
    report = await report_of(cwd=tmp_path)
    assert (report["leads"], report["cwd"]) == (True, str(tmp_path))


async def test_a_relative_executable_is_found_from_the_given_directory(tmp_path: Path) -> None:
    tmp_path.joinpath("server").symlink_to(sys.executable)
    with trio.fail_after(PATIENCE):
        async with connect(["./server", *python(READY)[1:]], cwd=tmp_path, shutdown_grace=GRACE) as channel:
            assert (await channel.receive()).message == IS_READY


@pytest.mark.parametrize(
    ("argv", "error", "said"),
    [
        *[
            ([name, "argument"], FileNotFoundError, name)
            for name in ("no-such-server", "./no-such-server", "/no/such/server")
        ],
        (["sh"], FileNotFoundError, "sh"),  # which is not in the PATH that the child would have
        ("server --flag", TypeError, "shell"),
        ([], TypeError, "shell"),
    ],
)
async def test_what_cannot_be_started_is_named(
    tmp_path: Path, argv: str | list[str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        async with connect(argv, env={"PATH": str(tmp_path)}):
            pytest.fail("it was started")


# How it ends


ENDS = {
    "at the end of its stdin": (POLITE, 7),
    "while it still writes": (f"{READY}; sys.stdin.read(); print('x' * 1_000_000); sys.exit(7)", 7),
    "by SIGTERM": (DEAF, -signal.SIGTERM),
    "by SIGKILL": (STUBBORN, -signal.SIGKILL),
}


@pytest.mark.parametrize(("script", "status"), ENDS.values(), ids=ENDS)
async def test_a_child_is_ended_by_the_end_of_its_stdin_then_by_sigterm_then_by_sigkill(
    script: str, status: int
) -> None:
    async with child(script) as ended:
        await ended.ready()
    assert ended.channel.process.returncode == status


@pytest.mark.parametrize("parent", ["sys.stdin.read()", "time.sleep(3600)", STUBBORN])
async def test_a_grandchild_that_ignores_everything_is_gone_too(parent: str) -> None:
    async with child(f"{GRANDCHILD}; {parent}") as family:
        await family.ready()


@pytest.mark.parametrize("script", [ECHO, DEAF, STUBBORN, FLOOD, f"{GRANDCHILD}; {STUBBORN}"])
async def test_a_cancelled_body_ends_everything_within_the_graces(script: str) -> None:
    with trio.CancelScope() as scope:
        async with child(script) as cancelled:
            scope.cancel()
            began = trio.current_time()
            await cancelled.channel.receive()
    assert scope.cancelled_caught
    assert trio.current_time() - began < 2 * GRACE + 3


async def test_an_exception_in_the_body_ends_everything_and_leaves_unwrapped() -> None:
    with pytest.raises(LookupError, match="mine"):  # noqa: PT012
        async with child(f"{GRANDCHILD}; {STUBBORN}") as family:
            await family.ready()
            raise LookupError("mine")


async def test_a_channel_that_the_body_has_closed_is_no_trouble() -> None:
    async with child(ECHO) as echo:
        await echo.channel.aclose()
    assert echo.channel.process.returncode == 0


async def test_a_task_that_still_receives_when_the_connection_closes_gets_an_end() -> None:
    async with trio.open_nursery() as nursery:
        async with child(ECHO) as echo:

            @nursery.start_soon
            async def receiver() -> None:
                with pytest.raises((trio.EndOfChannel, trio.ClosedResourceError)):
                    await echo.receive()

            await trio.testing.wait_all_tasks_blocked()


# A child that dies


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        ("sys.exit(3)", "exited with status 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was ended by SIGKILL"),
        (f"{GRANDCHILD}; sys.exit(3)", "exited with status 3"),
    ],
    ids=["exit", "signal", "grandchild"],
)
async def test_the_death_of_the_child_ends_receive_and_breaks_send(last: str, outcome: str) -> None:
    """Also when a grandchild holds the other ends of the pipes."""
    async with child(f"{READY}; {last}") as dead:
        with pytest.raises(trio.EndOfChannel):  # noqa: PT012
            while True:
                assert await dead.receive() == IS_READY
        await dead.channel.process.wait()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BrokenResourceError, match=outcome):
            await dead.channel.send(Envelope(IS_READY))
        assert dead.channel.outcome == outcome
        assert outcome in repr(dead.channel)


async def test_what_the_child_wrote_before_it_died_is_received() -> None:
    async with child(f"for _ in range(500): {READY}") as brief:
        await brief.channel.process.wait()
        received = [envelope.message async for envelope in brief.channel]
    assert received == [IS_READY] * 500


async def test_what_a_dead_child_left_running_is_ended_while_the_connection_lasts() -> None:
    async with child(f"{GRANDCHILD}; sys.exit(0)") as dead:
        with pytest.raises(trio.EndOfChannel):  # noqa: PT012
            while True:
                await dead.receive()
        await dead.gone()


async def test_a_line_that_is_no_message_is_quoted_in_its_error() -> None:
    async with child("print('Ready to serve\\x1b[31m', 'x' * 500, flush=True); sys.stdin.read()") as talkative:
        received = await talkative.receive()
    assert is_malformed(received)
    assert unnamed(str(received.error), "'Ready to serve", "stderr") == []
    assert "\x1b" not in str(received.error)
    assert len(str(received.error)) < 400


async def test_a_channel_whose_block_was_left_is_closed_for_both_directions() -> None:
    async with child(ECHO) as left:
        channel = left.channel
    with pytest.raises((trio.ClosedResourceError, trio.EndOfChannel)):
        await channel.receive()
    with pytest.raises((trio.ClosedResourceError, trio.BrokenResourceError)):
        await channel.send(Envelope(message_of({"jsonrpc": "2.0", "method": "late"})))
