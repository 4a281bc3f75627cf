"""What `trio-mcp doctor` checks on this machine: versions, keys, proxies, certificates, and the files of hosts."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from ...base.values import shown_url
from ...errors import ConfigurationError
from ...mcp_json import CommandServer, FoundServer
from ...protocol.revisions import MODERN, SUPPORTED
from ...protocol.sealing.request_state import KeyRing
from ..errors import CommandError
from ..hosts import HOSTS, Host, read_entries

State: TypeAlias = Literal["ok", "note", "warning", "error"]
SHOWN: Final = ("trio", "pydantic", "hypercorn", "httpx2")
"""The packages whose versions are worth a line."""
REQUIREMENT: Final = re.compile(r"[A-Za-z0-9._-]+")
PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
LOCAL: Final = ("127.0.0.1", "localhost", "*")


class Check(NamedTuple):
    """One thing that was looked at."""

    state: State
    subject: str
    text: str


def machine_checks() -> Iterator[Check]:
    """Yield what was found out without a server."""
    yield from version_checks()
    yield key_check()
    yield from proxy_checks()
    yield from certificate_checks()
    for host in HOSTS.values():
        yield from host_checks(host)


def version_checks() -> Iterator[Check]:
    ours = version("trio-mcp")
    yield Check("ok", "versions", f"trio-mcp {ours} on Python {sys.version.split()[0]} ({sys.executable})")
    yield Check(
        "ok", "revisions", f"{MODERN} (modern), {', '.join(each for each in SUPPORTED if each != MODERN)} (legacy)"
    )
    found: list[str] = []
    for requirement in requires("trio-mcp") or ():
        name = REQUIREMENT.match(requirement)
        if name is None or "extra ==" in requirement:
            continue
        try:
            installed = version(name[0])
        except PackageNotFoundError:
            yield Check("error", "versions", f"{name[0]} is not installed: pip install '{requirement}'")
            continue
        if name[0] in SHOWN:
            found.append(f"{name[0]} {installed}")
    yield Check("ok", "versions", ", ".join(found))


def key_check() -> Check:
    try:
        ring = KeyRing.from_environment()
    except ConfigurationError as error:
        return Check("error", "keys", str(error))
    if ring is not None:
        return Check("ok", "keys", "TRIO_MCP_KEYS is set: processes with the same keys can continue a call")
    return Check(
        "note",
        "keys",
        "TRIO_MCP_KEYS is not set: a call that waits for an answer ends with its process, and there is no store",
    )


def proxy_checks() -> Iterator[Check]:
    found = {name: value for name in PROXIES for value in (variable(name),) if value}
    if not found:
        yield Check("ok", "proxies", "none")
        return
    exempt = [part.strip() for part in (variable("NO_PROXY") or "").split(",")]
    for name, value in found.items():
        yield Check("note", "proxies", f"{name} is {shown_url(value)}: requests to URLs go through it")
    if not any(host in exempt for host in LOCAL):
        yield Check(
            "warning",
            "proxies",
            "NO_PROXY does not name 127.0.0.1: requests to servers on this machine go to the proxy, too",
        )


def variable(name: str) -> str | None:
    # Both spellings are in use, and HTTP clients read both.
    return os.environ.get(name) or os.environ.get(name.lower())


def certificate_checks() -> Iterator[Check]:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        path = os.environ.get(name)
        if path and not os.access(path, os.R_OK):
            yield Check("error", "certificates", f"{name} names {path}, which cannot be read: no https:// URL works")
        elif path:
            yield Check("ok", "certificates", f"{name} is {path}")


def host_checks(host: Host) -> Iterator[Check]:
    """Yield what is wrong in the files of a host; nothing for a host that is not there."""
    for location in host.files():
        if not location.path.exists():
            continue
        try:
            entries = read_entries(location.path, host, expand=True)
        except CommandError as error:
            yield Check("error", host.name, str(error))
            continue
        yield Check("ok", host.name, f"{location.path}: {len(entries)} {'server' if len(entries) == 1 else 'servers'}")
        for entry in entries:
            if entry.enabled:
                yield from entry_checks(host, entry)


def entry_checks(host: Host, entry: FoundServer) -> Iterator[Check]:
    if entry.error is not None:
        yield Check("warning", host.name, f"the server {entry.name!r}: {entry.error}")
    if not isinstance(entry.server, CommandServer):
        return
    command, *arguments = entry.server.command
    what = f"the server {entry.name!r}"
    if shutil.which(command) is None:
        yield Check("error", host.name, f"{what}: there is no command {command}")
    elif os.sep not in command:
        note = f"{what}: {command} is looked up in the PATH of the host, which may differ from that of this shell"
        yield Check("note", host.name, note)
    missing = [
        word for word in arguments if Path(word).is_absolute() and word.endswith(".py") and not Path(word).exists()
    ]
    for word in missing:
        yield Check("error", host.name, f"{what}: there is no file {word}")
