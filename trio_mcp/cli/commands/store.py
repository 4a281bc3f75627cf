"""`trio-mcp store`: look at the store in which a server keeps what outlives it, check it, and make it small."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from ...base.values import one_line, shown_url
from ...protocol.sealing.at_rest import Vault
from ...protocol.sealing.request_state import KeyRing
from ...stores import sqlite_upkeep
from ...stores.opening import find_store, scheme_and_target
from ...stores.upkeep import KindSummary, Sealings
from ..arguments import json_option
from ..command import CommandError, Status, command
from ..terminal.output import note, show_json, show_lines, show_table

EXAMPLES = """\
actions:
  list     what there is of each kind: how many, how large, how old; never what it says
  check    whether it is sound; with TRIO_MCP_KEYS, also whether these keys open everything in it
  vacuum   delete what has expired from a file, and give the room back

examples:
  trio-mcp store list state.db
  trio-mcp store list 'redis://cache:6379/0?namespace=travel'
  trio-mcp store check state.db --json
  trio-mcp store vacuum state.db

A database has a store for each server, under its name: ?namespace= takes one.

A server may use the store meanwhile. `vacuum` needs as much room again on the disk, and the server waits for it.
"""

UPKEEP: Final = {
    "redis": "redis_upkeep",
    "rediss": "redis_upkeep",
    "unix": "redis_upkeep",
    "postgresql": "postgres_upkeep",
    "postgres": "postgres_upkeep",
}
"""The modules that look into the stores on a network, by their schemes."""
UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Looks:
    """What may be asked of a store, and how it is named."""

    name: str
    summaries: Callable[[float], list[KindSummary]]
    findings: Callable[[], list[str]]
    sealings: Callable[[Vault], Sealings]


@command("store", EXAMPLES, {Status.TOOL_ERROR: "`check` found damage, or values that the keys do not open"})
@click.argument("action", type=click.Choice(["list", "check", "vacuum"]), metavar="list|check|vacuum")
@click.argument("store", type=click.Path(), metavar="STORE")
@json_option
def command_line(action: str, store: str, as_json: bool, debug: bool) -> int:  # noqa: ARG001
    """List, check or shrink the store in which a server keeps what outlives it.

    STORE is that of ServiceOptions(store=STORE) or TRIO_MCP_STORE: a file, or the URL of a database.
    """
    if action == "vacuum":
        return vacuum(file_of(store), as_json)
    return {"list": show_kinds, "check": check}[action](looks_into(store), as_json)


def looks_into(store: str) -> Looks:
    """Return what may be asked of a store. Raises `CommandError`, or `ConfigurationError` if an extra is missing."""
    scheme, _ = scheme_and_target(store)
    if scheme not in UPKEEP:
        path = file_of(store)
        upkeep: Any = sqlite_upkeep
        target: Path | str = path
    else:
        # Says which extra is missing.
        find_store(scheme)
        upkeep, target = import_module(f"...stores.{UPKEEP[scheme]}", __package__), store
    bound = (partial(look, target) for look in (upkeep.summaries, upkeep.findings, upkeep.sealings))
    return Looks(shown_url(str(target)), *bound)


def file_of(store: str) -> Path:
    """Return the path of the file that a store is. Raises `CommandError`, or `ConfigurationError` if there is no such store."""
    scheme, target = scheme_and_target(store)
    if scheme in UPKEEP:
        raise CommandError(f"vacuum is for files: {scheme} gives room back by itself")
    if scheme != "sqlite":
        # Shows nothing of a URL whose scheme is misspelt: it may have a password.
        find_store(scheme)
        raise CommandError(f"a store of {scheme}: is no file")
    return file_named(target)


def file_named(text: str) -> Path:
    """Return the path of a file that exists. Raises `CommandError`."""
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise CommandError(f"there is no file {text}: no user has this home directory") from None
    if path.is_dir():
        raise CommandError(f"{path} is a folder: name the file of ServiceOptions(store=FILE)")
    if not path.is_file():
        raise CommandError(f"{path} is no regular file" if path.exists() else f"there is no file {path}")
    return path


def show_kinds(store: Looks, as_json: bool) -> int:
    now = time.time()
    kinds = store.summaries(now)
    if as_json:
        show_json([each._asdict() for each in kinds])
    elif not kinds:
        note(f"{store.name} is empty")
    else:
        heads = ("kind", "form", "number", "entries", "expired", "bytes", "oldest", "newest")
        show_table(heads, [row_of(each, now) for each in kinds], right=range(2, len(heads)))
    return Status.OK


def check(store: Looks, as_json: bool) -> int:
    """Check a store; the status is 1 if something is wrong with it."""
    found = store.findings()
    ring = KeyRing.from_environment()
    # Of a damaged file not everything can be read.
    sealings = None if ring is None or found else store.sealings(Vault(ring))
    closed = 0 if sealings is None else sealings.closed
    if as_json:
        show_json({"sound": not found, "findings": found, "values": None if sealings is None else sealings._asdict()})
    elif found:
        show_lines([f"{store.name} is damaged, or may lose data:", *found])
    else:
        keys = "no keys to open anything with: set TRIO_MCP_KEYS"
        if sealings is not None:
            keys = f"{sealings.values - closed} of {sealings.values} values open with the keys of TRIO_MCP_KEYS"
        show_lines([f"{store.name} is sound; {keys}"])
    return Status.TOOL_ERROR if found or closed else Status.OK


def vacuum(path: Path, as_json: bool) -> int:
    before, after, is_read = sqlite_upkeep.vacuum(path, time.time())
    if as_json:
        show_json({"before": before, "after": after})
    else:
        show_lines([f"{path} had {before} bytes, and has {after} now"])
    if is_read:
        note(f"another process was reading {path}, so it is not smaller yet: vacuum it again when that has finished")
    return Status.OK


def row_of(each: KindSummary, now: float) -> Sequence[str]:
    entries = "" if each.entries is None else str(each.entries)
    numbers = (str(each.number), entries, str(each.expired), str(each.size))
    return (one_line(each.kind), each.form, *numbers, age(now, each.oldest), age(now, each.newest))


def age(now: float, then: float | None) -> str:
    """Return a duration in its largest unit; nothing if it is not known."""
    if then is None:
        return ""
    seconds = now - then
    for size, unit in UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "0 s"
