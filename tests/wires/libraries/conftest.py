"""A PostgreSQL server of its own for the tests of this folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

DEBIAN = Path("/usr/lib/postgresql")
USER = "postgres"
"""The account of Debian's package: the server refuses to run as root."""
REQUIRED = "TRIO_MCP_POSTGRES"
"""Set by `.ci/run` where it has installed the server: a missing one fails then."""
START = 60.0


@pytest.fixture(scope="session")
def postgres() -> Iterator[Path]:
    """The folder with the socket of a server, which has one user and trusts it."""
    programs = find_programs()
    if programs is None:
        missing = "PostgreSQL is not installed (apt-get install postgresql): asyncpg is not tried"
        (pytest.fail if REQUIRED in os.environ else pytest.skip)(missing)
    # A path that an account without rights may enter, and short enough for a socket.
    folder = Path(tempfile.mkdtemp(prefix="trio_mcp_postgres"))
    account = {}
    if os.getuid() == 0:
        entry = pwd.getpwnam(USER)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        account = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def run(program: str, *arguments: str) -> None:
        command = [str(programs / program), f"--pgdata={folder / 'data'}", *arguments]
        with (folder / f"{program}.log").open("ab") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log, cwd=folder, timeout=START, **account)

    try:
        run("initdb", f"--username={USER}", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")
        run(
            "pg_ctl",
            "start",
            "--wait",
            f"--options=-k {folder} -c listen_addresses= -c fsync=off -c max_connections=20",
        )
        try:
            yield folder
        finally:
            run("pg_ctl", "stop", "--wait", "--mode=immediate")
    finally:
        shutil.rmtree(folder)


def find_programs() -> Path | None:
    """Return the folder with the programs of the newest PostgreSQL, which Debian leaves out of the path."""
    on_path = shutil.which("initdb")
    found = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda program: float(program.parts[-3]))
    return Path(on_path).parent if on_path else found[-1].parent if found else None
