"""Run the official MCP conformance suite against examples/everything_server.py and with tests/conformance/client.py.

It installs what it needs through npm (the two pinned builds of the suite, and Node 22 where `node` is older) into a cache
folder, starts the server on a free port, and runs selections of server scenarios, and client scenarios one at a time.

examples:
  python tests/conformance/run.py                              everything, as `make conformance` does
  python tests/conformance/run.py --list                       the name of every scenario that is run
  python tests/conformance/run.py --only '^client .*sse-retry' one scenario, in each selection that has it
  python tests/conformance/run.py --only 'required @2026'      one selection of each side
  python tests/conformance/run.py --relayed --only sampling    what matches, with the proxy of `trio-mcp backfill` in between
  python tests/conformance/run.py --uvicorn --only '^server'   the server on uvicorn, with asyncio
  python tests/conformance/run.py --write                      everything, and the table into docs/internals/conformance.md

exit status: 0 everything passed; 1 something failed, was skipped or is missing; 2 it could not be run.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio
from driving import ROOT, Driver, Ran, Served, served
from report import markdown, printed, written_into
from selections import SELECTIONS, Selection, scenarios_of
from suites import ALPHA, STABLE, SetupError, Suite, default_cache, install_suites

PAGE = ROOT / "docs" / "internals" / "conformance.md"


class Chosen(NamedTuple):
    """What of a selection is run."""

    selection: Selection
    scenarios: list[str]
    whole: bool


def main() -> int:
    options = parsed()
    try:
        suites = install_suites(options.cache, (STABLE, ALPHA))
        chosen = chosen_by(options.only, suites)
        if options.list:
            print(*(row(one.selection, name) for one in chosen for name in one.scenarios), sep="\n")
            return 0
        results = trio.run(partial(run_all, chosen, suites, fresh(options.results), options.server))
        return concluded(results, chosen, options.results, write=options.write)
    except SetupError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2


def parsed() -> argparse.Namespace:
    about, _, examples = (__doc__ or "").partition("\nexamples:\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=f"examples:\n{examples}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="run what matches `SIDE SUITE SELECTION SCENARIO`")
    parser.add_argument("--list", action="store_true", help="say what would be run, and run nothing")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), metavar="DIR", help="where npm's packages are kept"
    )
    parser.add_argument(
        "--results", type=Path, default=ROOT / "build" / "conformance", metavar="DIR", help="where the results go"
    )
    server = parser.add_mutually_exclusive_group()
    add = partial(server.add_argument, action="store_const", dest="server", default=Served.ALONE)
    add("--relayed", const=Served.RELAYED, help="put a proxy in front of the server")
    add("--uvicorn", const=Served.ON_UVICORN, help="serve on uvicorn, with asyncio")
    options = parser.parse_args()
    if options.write and (options.only or options.server is not Served.ALONE):
        parser.error("--write needs a whole run, so it does not go with --only, --relayed or --uvicorn")
    return options


def chosen_by(only: str, suites: dict[str, Suite]) -> list[Chosen]:
    """The scenarios to run, by selection.

    Raises:
        SetupError: nothing matches.
    """
    chosen: list[Chosen] = []
    for selection in SELECTIONS:
        names = scenarios_of(selection, suites[selection.version])
        wanted = [name for name in names if re.search(only, row(selection, name))]
        if wanted:
            chosen.append(Chosen(selection, wanted, wanted == names))
    if not chosen:
        raise SetupError(f"nothing matches {only!r}; --list shows what there is")
    return chosen


def row(selection: Selection, scenario: str) -> str:
    return f"{selection.label} {scenario}"


def fresh(folder: Path) -> Path:
    """An empty folder: what an earlier run wrote must not be counted."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


async def run_all(chosen: Sequence[Chosen], suites: dict[str, Suite], folder: Path, server: Served) -> list[Ran]:
    """Run what was chosen, one after the other, and say of each how it went."""
    results: list[Ran] = []
    async with served(folder / "server.log", server) as url:
        driver = Driver(suites, folder, url)
        for one in chosen:
            ran = await driver.run(one.selection, one.scenarios, whole=one.whole)
            print(*printed(ran), sep="\n", flush=True)
            results.append(ran)
    return results


def concluded(results: Sequence[Ran], chosen: Sequence[Chosen], folder: Path, *, write: bool) -> int:
    """Say how the run went as a whole, and keep the table in step with it."""
    failed = sum(len(ran.failed) for ran in results)
    print(f"\n{failed} scenarios did not pass; {folder} has the details" if failed else "\nEverything passed.")
    if len(chosen) == len(SELECTIONS) and all(one.whole for one in chosen):
        page = written_into(PAGE, markdown(results))
        if write:
            PAGE.write_text(page)
        elif page != PAGE.read_text():
            print(
                f"{PAGE.relative_to(ROOT)} shows other results: run this again with --write, and look at what changed"
            )
            return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
