"""`trio-mcp doctor`: check what often goes wrong with a server, and around it."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

import click
import trio

from ...base.groups import single_exception
from ...client import Client
from ...errors import PeerError
from ...session.calls.services import ONE_CLIENT
from ..arguments import Seconds, TargetText, header_option, json_option
from ..command import CommandError, Status, command, run_command
from ..connecting import GIVE_HEADER, Connecting, configure_log, started, target_errors, wants_credentials
from ..diagnosis import Check, machine_checks
from ..hosts import HOSTS, read_entries
from ..targets.host_targets import target_of
from ..targets.loading import load_python
from ..targets.logins import login_for
from ..targets.target import CommandTarget, PythonTarget, Target, UrlTarget, read_target, target_texts
from ..terminal.output import show_json, show_table

EXAMPLES = """\
examples:
  trio-mcp doctor
  trio-mcp doctor --connect
  trio-mcp doctor app.py
  trio-mcp doctor mcp.json
  trio-mcp doctor http://127.0.0.1:8000/mcp
  trio-mcp doctor https://mcp.example.com/mcp --header authorization='Bearer ...' --json

Without TARGET it looks at this machine: versions, keys, proxies, certificates, and the servers in the files of hosts. With TARGET
it connects to the server as a client of each era as well, and checks which names it accepts in the Host header: one that accepts
every name can be reached by every web site (DNS rebinding). The status is 1 if there is an error. With TARGET it is about the
target: what is wrong with this machine alone is a warning.
"""

FOREIGN_HOST: Final = "host-that-no-server-has.invalid"
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


@command("doctor", EXAMPLES, {Status.TOOL_ERROR: "it found an error"})
@click.argument("target", required=False, type=TargetText(), metavar="[TARGET]")
@click.option(
    "--timeout", type=Seconds(), default=20.0, show_default=True, metavar="SECONDS", help="For each connection."
)
@click.option(
    "--connect",
    "connects",
    is_flag=True,
    help="Without TARGET: connect to each server of the hosts as well. A TARGET is always connected to.",
)
@header_option
@json_option
def command_line(
    target: str | None,
    timeout: float,
    connects: bool,
    headers: Sequence[tuple[str, str]],
    as_json: bool,
    debug: bool,
) -> int:
    """Check what often goes wrong with a server, and around it.

    TARGET is what `trio-mcp call` takes. Of a file without a name (mcp.json) all servers are checked.
    """
    configure_log(debug)
    # What a target needs of the machine shows when it is connected to.
    checks = [*(machine_checks() if target is None else map(no_error, machine_checks()))]

    async def connect() -> int:
        assert target is not None
        texts = target_texts(target)
        for text in texts:
            try:
                connecting = Connecting(read_target(text), "auto", math.inf, dict(headers), debug)
            except CommandError as error:
                if len(texts) == 1:
                    raise
                checks.append(Check("error", f"{text}, file", str(error)))
                continue
            async for check in server_checks(connecting, timeout):
                named = check._replace(subject=f"{text}, {check.subject}") if len(texts) > 1 else check
                checks.append(named)  # those before an interrupt are shown, too
        return Status.OK

    async def connect_to_all() -> int:
        for name, found in host_targets():
            async for check in server_checks(Connecting(found, "auto", math.inf, {}, debug), timeout):
                checks.append(check._replace(subject=f"{name}, {check.subject}"))  # noqa: PERF401  as above
        return Status.OK

    if target is not None:
        run_command(connect)
    elif connects:
        run_command(connect_to_all)
    if as_json:
        show_json([check._asdict() for check in checks])
    else:
        show_table(("state", "about", "found"), checks)
    return Status.TOOL_ERROR if any(check.state == "error" for check in checks) else Status.OK


def host_targets() -> Iterator[tuple[str, Target]]:
    """Yield the servers in the files of hosts, as `cursor:name`; without those in which `machine_checks` finds an error."""
    for host in HOSTS.values():
        for location in host.files():
            with suppress(CommandError):
                for entry in read_entries(location.path, host, expand=True):
                    if entry.enabled and entry.error is None:
                        yield f"{host.name}:{entry.name}", target_of(entry)


def no_error(check: Check) -> Check:
    """Return a check with an error as a warning."""
    return check._replace(state="warning") if check.state == "error" else check


async def server_checks(connecting: Connecting, timeout: float) -> AsyncIterator[Check]:
    """Yield what was found out about a server by connecting to it."""
    if isinstance(connecting.target, PythonTarget):
        try:
            load_python(connecting.target)
        except CommandError as error:
            yield Check("error", "file", str(error))
            return
    reached, unknown = False, False
    for era in ("modern", "legacy"):
        said, problem = await hello(replace(connecting, mode=era), timeout)
        reached = reached or problem is None
        unknown = unknown or (problem is not None and wants_credentials(connecting.target, str(problem)))
        yield Check("ok", era, said) if problem is None else Check("warning", era, str(problem))
    if not reached:
        why = f": 401, it does not know who calls; log in with trio-mcp login, or {GIVE_HEADER}" if unknown else ""
        yield Check("error", "server", f"no client of either era can connect to it{why}")
    elif isinstance(connecting.target, UrlTarget):
        yield await host_check(connecting, timeout)
        yield address_check(connecting.target.url)


async def hello(connecting: Connecting, timeout: float) -> tuple[str, CommandError | None]:
    """Connect as a client of an era; return what the server is, or why it cannot be reached."""
    try:
        with trio.fail_after(timeout), target_errors(connecting.target):
            async with plain_client(connecting) as client:
                info = client.server_info
                name = f"{info.name} {info.version}" if info else "a server without a name"
                return f"{name} speaks {client.protocol_version}", None
    except CommandError as error:
        return "", error
    except trio.TooSlowError:
        return "", CommandError(f"it did not answer within {timeout:g} seconds", Status.REFUSED)


def plain_client(connecting: Connecting, headers: Mapping[str, str] | None = None) -> Client:
    """Return a client without handlers; the stderr of a server that is started goes nowhere."""
    target = connecting.target
    if isinstance(target, PythonTarget):
        target = started(target)
    if isinstance(target, CommandTarget):
        env = {**os.environ, ONE_CLIENT: "1", **target.env}
        return Client.connect(target.words, mode=connecting.mode, env=env, cwd=target.cwd, stderr=subprocess.DEVNULL)
    own = {**target.headers, **connecting.headers, **(headers or {})}
    try:
        return Client.connect(target.url, mode=connecting.mode, headers=own, auth=login_for(target, own))
    except (ValueError, TypeError) as error:
        raise CommandError(str(error)) from error


async def host_check(connecting: Connecting, timeout: float) -> Check:
    """Return whether a server rejects requests for a name that is not its own."""
    try:
        with trio.fail_after(timeout):
            async with plain_client(connecting, {"host": FOREIGN_HOST}):
                return Check(
                    "warning",
                    "Host",
                    f"it accepts requests for {FOREIGN_HOST}: list its own names, as with --allowed-host",
                )
    except PeerError:
        return Check("ok", "Host", "it rejects requests for names that are not its own")
    except Exception as error:  # noqa: BLE001  whichever way a server rejects it
        found = single_exception(error)
        return Check(
            "ok", "Host", f"it does not answer requests for names that are not its own ({type(found).__name__})"
        )


def address_check(url: str) -> Check:
    parts = urlsplit(url)
    if parts.scheme in ("http", "ws") and parts.hostname not in LOOPBACK:
        return Check(
            "warning", "TLS", f"{parts.scheme}:// sends everything, keys included, in the clear: use {parts.scheme}s://"
        )
    return Check("ok", "TLS", f"{parts.scheme}://{parts.hostname}")
