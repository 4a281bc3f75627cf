"""One child of `trio-mcp dev`: it waits until it is needed, loads the file as it is then, and serves it until it is replaced."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

import trio

from ...base.groups import UnwrappedErrors, first_leaf
from ...server import Server
from ...server.access import Restricted
from ...server.composing import as_mounted
from ...server.lifespan import LIFESPAN_NOTE
from ...server.pages import Offer
from ...server.registry import Registry
from ...server.running import load_for_calls, run_process
from ...session.options import WORKPLACE, HandOver, Workplace
from ...session.subscriptions import LISTS, Change
from ...session.transport import authenticates
from .. import main
from ..command import CommandError, Status, http_errors
from ..targets.loading import OwnFiles, WrongChoice, lifespan_errors, load_python, project_roots
from ..targets.target import PythonTarget
from ..worker import VARIABLE, WorkerFacts, take_sockets
from ..worker_folder import FolderLock
from .control import Begin, Ending, Failed, Loaded, Message, Read, Replaced, Serving, decoded, encoded
from .sources import Source, note_sources

HAND_OVER_SECONDS: Final = 30.0
"""For how long calls go on with the code that they began with."""

OUR_PACKAGES: Final = ("trio_mcp", "trio_mcp_transports")
"""In a checkout they are in the folder of the examples."""

PRELOADED: Final = (
    "trio_mcp.cli.commands.dev",
    "trio_mcp_transports.http.server.serve",
    "trio_mcp_transports.http.link.elsewhere",
    "trio_mcp.stores.sqlite",
    "hypercorn.trio.run",
)
"""What serving needs, whatever the file has; a child that waits has it."""


class Control:
    """The child's end of the connection to the parent.

    Args:
        folder: that the children of the parent share.
    """

    def __init__(self, sock: socket.socket, folder: Path) -> None:
        self._workplace = Workplace(folder, announces=False)
        self._sock = sock
        self._lines = sock.makefile("rb")
        self._sending = threading.Lock()
        self.begin: Begin | None = None
        self.server: Server | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._was_replaced = False
        self._has_reported = False

    def was_replaced(self) -> bool:
        """Return whether another child serves in the place of this one."""
        return self._was_replaced

    def send(self, message: Message) -> None:
        """Send a message, in any thread; nothing happens if the parent has ended."""
        # `follow` notices the end.
        with suppress(OSError), self._sending:
            self._sock.sendall(encoded(message))

    def note(self, path: Path, source: Source) -> None:
        """Report a file that was read."""
        self.send(Read.of(path, source))

    def wait_begin(self) -> bool:
        """Wait until this child is needed; return False if the parent has ended before."""
        line = self._lines.readline()
        message = decoded(line) if line else None
        self.begin = message if isinstance(message, Begin) else None
        return self.begin is not None

    def follow(self) -> None:
        """Do what the parent says until it ends, and then end as after SIGTERM; run it in a thread.

        A thread notices the end also while the file is imported, and when the event loop hangs.
        """
        for line in self._lines:
            message = decoded(line)
            if isinstance(message, Replaced) and self._token is not None:
                self._token.run_sync_soon(self._replace, message)
        with suppress(OSError):
            self._workplace.note_ending()
        os.kill(os.getpid(), signal.SIGTERM)

    def serves(self, server: Server, urls: list[str]) -> None:
        """Report that a server is served by this task's event loop."""
        self.server, self._token = server, trio.lowlevel.current_trio_token()
        http = server.http
        self.send(Serving(urls, is_sse=http is not None and http.path is None))

    def _replace(self, message: Replaced) -> None:
        self._was_replaced = True
        services = [*self.server._running] if self.server is not None else []  # noqa: SLF001
        for service in services:
            for kind in LISTS:
                if kind in message.lists:
                    service.subscriptions.announce(Change(kind))
        os.kill(os.getpid(), signal.SIGTERM)

    def handed_over(self) -> None:
        """Report how many calls go on, once nothing new comes to this process."""
        if not self._has_reported:
            self._has_reported = True
            services = [*self.server._running] if self.server is not None else []  # noqa: SLF001
            actors = [actor.name for service in services for actor in service.supervisor.actors]
            self.send(Ending(sum(not name.startswith("subscriptions/") for name in actors)))


CONTROL: Final[ContextVar[Control | None]] = ContextVar("CONTROL", default=None)
"""None in every process but a child."""


def serve_child(control: Control, target: PythonTarget, options: Mapping[str, object], *, debug: bool) -> int:
    """Load a server, and serve it over HTTP until the end of this process; return the exit status.

    Raises:
        CommandError: the lifespan failed at its end.
    """
    own = OwnFiles(project_roots(target.source))
    ours = tuple(f"{Path(str(import_module(name).__file__)).parent}{os.sep}" for name in OUR_PACKAGES)
    note_sources(lambda path: not str(path).startswith(ours) and own.owns(path), control.note)
    try:
        is_over_http = control.begin is None or control.begin.path is None
        server = load_python(target, tell_errors=True, served_open=is_over_http)
        check_loaded(control, server, target)
    # Whatever the code of the user does while it is imported. No task runs yet, so that it is no cancellation.
    except BaseException as error:  # noqa: BLE001, ASYNC103
        is_final = isinstance(error, WrongChoice) or is_missing(error, target.source)
        return failed(control, error, own, is_final=is_final, debug=debug)  # noqa: ASYNC104
    control.send(loaded(server))
    if control.begin is not None and control.begin.path is not None:
        # Only the parent reaches it, which serves a host on stdio: there the HTTP options of a file have no effect.
        server = copy(server)
        server._http = None  # noqa: SLF001
        options = {"path": control.begin.path, "announce": False}
    try:
        with http_errors(), lifespan_errors(target.source):
            run_process(partial(serve, control, server, options))
    except Exception as error:
        if control.server is not None:
            raise
        return failed(control, error, own, is_final=True, debug=debug)
    return Status.OK


def check_loaded(control: Control, server: object, target: PythonTarget) -> None:
    """Raise `CommandError` if what a file has is not served."""
    if not isinstance(server, Server):
        kind = type(server).__name__
        raise WrongChoice(
            f"{target.text} has a {kind}, which offers what the server behind it does: use 'trio-mcp serve'"
        )
    begin = control.begin
    if begin is not None and begin.must_authenticate and begin.path is None and not authenticates(server):
        raise CommandError(
            "it no longer authenticates its callers, as it did when 'trio-mcp dev' was started: it is not served open; "
            "end the command and start it again to apply this"
        )


async def serve(control: Control, server: Server, options: Mapping[str, object]) -> None:
    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            urls = await nursery.start(partial(serve_over_http, server, options))
            control.serves(server, urls)


async def serve_over_http(
    server: Server, options: Mapping[str, object], *, task_status: trio.TaskStatus[list[str]]
) -> None:
    await server.serve("http", **options, task_status=task_status)


def failed(control: Control, error: BaseException, own: OwnFiles, *, is_final: bool, debug: bool) -> int:
    """Report an error to the parent, which shows it; return the exit status."""
    text = " ".join(str(error).split()) if isinstance(error, CommandError) else f"{type(error).__name__}: {error}"
    status = error.status if isinstance(error, CommandError) else Status.UNREACHABLE
    control.send(Failed(text, described(error, own, debug=debug), is_final))
    return status


def is_missing(error: BaseException, source: Path | str) -> bool:
    """Return whether the file or the module that was named, or a package that it is in, does not exist."""
    if isinstance(source, Path):
        return not source.exists()
    cause = error.__cause__
    return isinstance(cause, ModuleNotFoundError) and f"{source}.".startswith(f"{cause.name}.")


def described(error: BaseException, own: OwnFiles, *, debug: bool) -> list[str]:
    """Return where in the project an error was raised and what it says, line by line."""
    # What the loading of files says of it is for one line.
    cause = first_leaf(error.__cause__ if isinstance(error, CommandError) and error.__cause__ else error)
    if debug:
        return "".join(traceback.format_exception(cause)).splitlines()
    if isinstance(cause, SyntaxError):
        return [f"  {line}" for line in lines_of(cause)]
    frame = own.last_frame(cause)
    where = [] if frame is None else [f"  {frame.filename}, line {frame.lineno}: {frame.line}"]
    its_own = ["  its lifespan failed"] if LIFESPAN_NOTE in getattr(cause, "__notes__", ()) else []
    said = f"{cause}" if isinstance(cause, CommandError) else f"{type(cause).__name__}: {cause}"
    return [*its_own, *where, *(f"  {line}" for line in said.splitlines())]


def lines_of(error: SyntaxError) -> list[str]:
    """Return where a syntax error is, the line, and what is wrong with it."""
    where = f"{error.filename}, line {error.lineno}" + (f": {error.text.strip()}" if error.text else "")
    return [where, f"{type(error).__name__}: {error.msg}"]


# What clients see of a server, for a comparison with that of the next version of its file.

IDENTITY: Final = ("name", "version", "title", "description", "website_url", "icons")


def loaded(server: Server) -> Loaded:
    """Return what clients see of a server."""
    registry = as_mounted(server).registry
    tools = server._listed_tools()  # noqa: SLF001
    lists = {
        "tools": digest([each.wire() for each in tools]),
        "prompts": digest(models(registry.prompts)),
        "resources": digest([models(registry.resources), models(registry.templates)]),
    }
    identity = server.identity.wire()
    declared = {
        **{name: digest(identity.get(name)) for name in identity},
        **{f"capabilities.{name}": "" for name in registry.capabilities.wire()},
        "instructions": digest(server.instructions),
    }
    return Loaded(lists, [*hiding_lists(registry)], declared, authenticates(server))


def models(items: Iterable[Offer]) -> list[object]:
    return [item.model.wire() for item in items]


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def hiding_lists(registry: Registry) -> Iterator[str]:
    """Yield the lists that have items which some callers do not see."""
    if Restricted(registry.tools).hideable():
        yield "tools"
    if Restricted(registry.prompts).hideable():
        yield "prompts"
    if Restricted(registry.resources).hideable() or Restricted(registry.templates).hideable():
        yield "resources"


def preload() -> None:
    """Load what serving needs, whatever the file has."""
    for name in PRELOADED:
        import_module(name)
    load_for_calls()


def run() -> int:
    """Wait until this child is needed, and run the command in the arguments as one; return the exit status."""
    facts = WorkerFacts(*json.loads(os.environ.pop(VARIABLE)))
    # Programs that tools start must not have it.
    os.set_inheritable(facts.parent, False)
    control = Control(socket.socket(fileno=facts.parent), Path(facts.folder))
    take_sockets(facts.sockets)
    preload()
    if not control.wait_begin():
        return Status.OK
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=control.follow, name="trio_mcp parent", daemon=True).start()
    assert control.begin is not None
    hand_over = HandOver(HAND_OVER_SECONDS, control.was_replaced, control.handed_over)
    workplace = Workplace(Path(facts.folder), control.begin.announces, hand_over)
    lock = FolderLock(workplace.folder)
    WORKPLACE.set(workplace)
    CONTROL.set(control)
    try:
        return main()
    finally:
        # The parent may have been killed.
        lock.leave()
