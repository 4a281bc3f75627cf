"""`trio-mcp store`: look at the file in which a server keeps what outlives it, check it, and make it small."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from ...base.values import one_line
from ...protocol.sealing.at_rest import Vault
from ...protocol.sealing.request_state import KeyRing
from ...stores import sqlite_upkeep
from ...stores.sqlite_upkeep import KindSummary
from ..arguments import json_option
from ..command import command
from ..errors import CommandError, Status
from ..terminal.output import note, show_json, show_lines, show_table

EXAMPLES = """\
actions:
  list     what there is of each kind: how many, how large, how old; never what it says
  check    whether the file is sound; with TRIO_MCP_KEYS, also whether these keys open everything in it
  vacuum   delete what has expired, and give the room back

examples:
  trio-mcp store list state.db
  trio-mcp store check state.db --json
  trio-mcp store vacuum state.db

A server may use the file meanwhile. `vacuum` needs as much room again on the disk, and the server waits for it.
"""

SCHEME: Final = "sqlite:"
UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@command("store", EXAMPLES, {Status.TOOL_ERROR: "`check` found damage, or values that the keys do not open"})
@click.argument("action", type=click.Choice(["list", "check", "vacuum"]), metavar="list|check|vacuum")
@click.argument("file", type=click.Path(), metavar="FILE")
@json_option
def command_line(action: str, file: str, as_json: bool, debug: bool) -> int:  # noqa: ARG001
    """List, check or shrink the file in which a server keeps what outlives it.

    FILE is that of ServiceOptions(store=FILE).
    """
    path = file_named(file.removeprefix(SCHEME))
    return {"list": show_kinds, "check": check, "vacuum": vacuum}[action](path, as_json)


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


def show_kinds(path: Path, as_json: bool) -> int:
    now = time.time()
    kinds = sqlite_upkeep.summaries(path, now)
    if as_json:
        show_json([each._asdict() for each in kinds])
    elif not kinds:
        note(f"{path} is empty")
    else:
        heads = ("kind", "form", "number", "entries", "expired", "bytes", "oldest", "newest")
        show_table(heads, [row_of(each, now) for each in kinds], right=range(2, len(heads)))
    return Status.OK


def check(path: Path, as_json: bool) -> int:
    """Check a file; the status is 1 if something is wrong with it."""
    found = sqlite_upkeep.findings(path)
    ring = KeyRing.from_environment()
    # Of a damaged file not everything can be read.
    sealings = None if ring is None or found else sqlite_upkeep.sealings(path, Vault(ring))
    closed = 0 if sealings is None else sealings.closed
    if as_json:
        show_json({"sound": not found, "findings": found, "values": None if sealings is None else sealings._asdict()})
    elif found:
        show_lines([f"{path} is damaged:", *found])
    else:
        keys = "no keys to open anything with: set TRIO_MCP_KEYS"
        if sealings is not None:
            keys = f"{sealings.values - closed} of {sealings.values} values open with the keys of TRIO_MCP_KEYS"
        show_lines([f"{path} is sound; {keys}"])
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
    return (one_line(each.kind), each.form, *numbers, age(now - each.oldest), age(now - each.newest))


def age(seconds: float) -> str:
    """Return a duration in its largest unit."""
    for size, unit in UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "0 s"
