"""`trio-mcp backfill` when a host, a server, an API or a user does what it should not. Every wait is bounded."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from command import COMMAND, NO_KEYS, ROOT, SAMPLING, SECONDS
from peer import hello
from wire_terms import NEWEST_LEGACY

from trio_mcp import Client
from trio_mcp.cli.terminal.prompting import ControllingTerminal

NOWHERE = "http://127.0.0.1:1/v1"


class SilentApi:
    """An API that takes requests and never answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(SECONDS)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def asked(self) -> socket.socket:
        """Wait for a request, and return its connection."""
        connection, _ = self._listener.accept()
        connection.settimeout(SECONDS)
        assert connection.recv(65536)
        return connection

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def api() -> Iterator[SilentApi]:
    api = SilentApi()
    yield api
    api.close()


def ended(connection: socket.socket) -> bool:
    """Wait until the proxy has ended its request to the model."""
    while connection.recv(65536):
        pass
    return True


class Host:
    """A host that writes line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def send(self, method: str, params: object, request_id: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message if request_id is None else {**message, "id": request_id}).encode())
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def answer_to(self, request_id: int) -> dict[str, object]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, object] = json.loads(line)
            if message.get("id") == request_id:
                return message
        raise AssertionError("the proxy has left")

    def open(self) -> int:
        """Open a session; return the process id of the server."""
        self.send("initialize", hello(NEWEST_LEGACY, {}), 1)
        self.answer_to(1)
        self.send("notifications/initialized", {})
        self.send("tools/call", {"name": "pid", "arguments": {}}, 2)
        content: list[dict[str, str]] = self.answer_to(2)["result"]["content"]  # type: ignore[index,assignment,call-overload]
        return int(content[0]["text"])


@contextmanager
def host_of(*arguments: str) -> Iterator[Host]:
    with subprocess.Popen(
        [*COMMAND, "backfill", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=NO_KEYS,
        cwd=ROOT,
    ) as process:
        # This ends a test that would hang.
        watchdog = threading.Timer(SECONDS, process.kill)
        watchdog.start()
        try:
            yield Host(process)
        finally:
            watchdog.cancel()
            process.kill()


@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0), ("end of stdin", 0)]
)
def test_the_proxy_ends_while_a_model_works_and_leaves_no_process(
    api: SilentApi, how: signal.Signals | str, status: int
) -> None:
    with host_of("--provider", api.url, "--model", "m", "--", *SAMPLING) as host:
        server = host.open()
        host.send("tools/call", {"name": "think", "arguments": {}}, 3)
        with api.asked() as connection:
            if isinstance(how, str):
                assert host.process.stdin is not None
                host.process.stdin.close()
            else:
                host.process.send_signal(how)
            assert host.process.wait(SECONDS) == status
            assert ended(connection)
        with pytest.raises(ProcessLookupError):
            os.kill(server, 0)


def test_a_server_that_is_killed_while_a_model_works_ends_the_proxy(api: SilentApi) -> None:
    with host_of("--provider", api.url, "--model", "m", "--", *SAMPLING) as host:
        server = host.open()
        host.send("tools/call", {"name": "think", "arguments": {}}, 3)
        with api.asked() as connection:
            os.kill(server, signal.SIGKILL)
            assert host.answer_to(3)["error"]["code"] == -32603  # type: ignore[index,call-overload]
            assert ended(connection)
        assert host.process.wait(SECONDS) == 3


def test_a_server_that_ignores_its_end_is_killed(tmp_path: Path) -> None:
    stubborn = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "while True: time.sleep(1)\n"
    )
    with host_of("--provider", NOWHERE, "--", sys.executable, "-c", stubborn) as host:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert host.process.poll() is None
        assert host.process.stdin is not None
        host.process.stdin.close()
        assert host.process.wait(SECONDS) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize(("options", "known"), [((), False), (("--share-key",), True)])
async def test_the_key_of_the_provider_is_not_for_the_server(options: tuple[str, ...], known: bool) -> None:
    command = [*COMMAND, "backfill", "--provider", NOWHERE, *options, "--", *SAMPLING]
    with trio.fail_after(SECONDS):
        async with Client.connect(command, env={**NO_KEYS, "OPENAI_API_KEY": "sk-1"}) as client:
            assert (await client.call_tool("has_key")).data is known


# the terminal


@contextmanager
def terminal() -> Iterator[tuple[int, ControllingTerminal]]:
    ours, theirs = pty.openpty()
    shown = ControllingTerminal(os.ttyname(theirs))
    try:
        yield ours, shown
    finally:
        shown.close()
        os.close(ours)
        os.close(theirs)


async def test_a_terminal_whose_line_another_process_has_read_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = 0

    async def false_alarm(descriptor: int) -> None:
        nonlocal waits
        waits += 1
        if waits == 1:
            await trio.lowlevel.checkpoint()
        else:
            await trio.sleep_forever()

    monkeypatch.setattr(trio.lowlevel, "wait_readable", false_alarm)
    with terminal() as (_, shown), trio.move_on_after(SECONDS) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shown.ask, "name: ")
            await trio.testing.wait_all_tasks_blocked()
            assert waits == 2
            nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught


def test_a_terminal_that_shows_nothing_holds_up_nothing() -> None:
    with terminal() as (_, shown):
        shown.note("x" * 1024 * 1024)


def test_control_characters_of_a_form_are_replaced() -> None:
    with terminal() as (ours, shown):
        shown.note("\x1b]0;title\x07\x1b[2J\u202e")
        assert b"\x1b" not in os.read(ours, 4096)


async def test_the_end_of_a_terminal_closes_the_form() -> None:
    with terminal() as (ours, shown), trio.fail_after(SECONDS):
        os.write(ours, b"\x04")
        assert await shown.ask("name: ") is None
