"""Run pytest on a newer CPython than this machine has: in a small Debian that debootstrap makes in a folder.

The arguments are pytest's. It needs root, debootstrap, `unshare`, and apt with a mirror that has the newer release. Where one of
them is missing, nothing runs: one line says why, and the exit status is 0. The folder is made once; its packages are installed
again when `pyproject.toml` has changed.

examples:
  python tests/pythons/run.py tests/server -n 2
  python tests/pythons/run.py tests/sweep -k agent

exit status: that of pytest; 1 if the packages cannot be installed.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

VERSION: Final = "3.13"
RELEASE: Final = "trixie"
"""The release of Debian that has this version of CPython."""

REPOSITORY: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = REPOSITORY / "build" / "pythons"
DEBIAN: Final = FOLDER / RELEASE
LOG: Final = FOLDER / "debootstrap.log"
ENVIRONMENT: Final = "/dev-environment"
PYTHON: Final = f"{ENVIRONMENT}/bin/python"
SCHEMAS: Final = Path(os.environ.get("MCP_SPEC_DIR", REPOSITORY.parent / "shared" / "spec"))

NEEDED: Final = ("python3", "python3-venv", "ca-certificates")
OF_THE_MACHINE: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""Files with which this machine reaches a package index."""
DEBOOTSTRAP_SECONDS: Final = 600


class Unavailable(Exception):
    """The environment cannot be made on this machine."""


def main(arguments: Sequence[str]) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        make_debian()
    except Unavailable as error:
        print(f"SKIPPED: no test ran on CPython {VERSION}: {error}", file=sys.stderr)
        return 0
    if not install_packages():
        return 1
    return run_inside([PYTHON, "-m", "pytest", "-p", "no:cacheprovider", *arguments])


def make_debian() -> None:
    """Make the Debian, unless it is there.

    Raises:
        Unavailable: it cannot be made here.
    """
    done = DEBIAN / ".made"
    if done.exists():
        return
    if os.geteuid() != 0:
        raise Unavailable("only root can make a Debian and change into it")
    for command in ("debootstrap", "unshare", "apt-get"):
        if shutil.which(command) is None:
            raise Unavailable(f"there is no {command} on this machine")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        raise Unavailable("this machine allows no mount namespaces")
    shutil.rmtree(DEBIAN, ignore_errors=True)
    # In a mount namespace, so that what it mounts is gone afterwards, however it ends.
    making = ["debootstrap", "--variant=minbase", f"--include={','.join(NEEDED)}", RELEASE, str(DEBIAN), mirror()]
    with LOG.open("w") as log:
        try:
            made = subprocess.run(
                ["unshare", "--mount", *making], stdout=log, stderr=log, timeout=DEBOOTSTRAP_SECONDS
            ).returncode
        except subprocess.TimeoutExpired:
            raise Unavailable(f"debootstrap took more than {DEBOOTSTRAP_SECONDS} seconds; see {LOG}") from None
    if made:
        raise Unavailable(f"debootstrap could not make {RELEASE} from the mirror of this machine; see {LOG}")
    done.touch()


def mirror() -> str:
    """Return the address from which this machine installs Debian's packages.

    Raises:
        Unavailable: it has none.
    """
    listed = subprocess.run(
        ["apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
    ).stdout.split()
    found = next((each for each in listed if each.rstrip("/").endswith("/debian")), None)
    if found is None:
        raise Unavailable("apt has no mirror of Debian configured")
    return found


def install_packages() -> bool:
    """Install this project and its dev dependencies, unless that was done for this `pyproject.toml`; return whether it worked."""
    done = DEBIAN / ".installed"
    wanted = hashlib.sha256((REPOSITORY / "pyproject.toml").read_bytes()).hexdigest()
    if done.exists() and done.read_text() == wanted:
        return True
    for name in OF_THE_MACHINE:
        if Path(name).exists():
            shutil.copyfile(name, DEBIAN / name.lstrip("/"))
    failed = run_inside(["python3", "-m", "venv", "--clear", ENVIRONMENT]) or run_inside(
        [PYTHON, "-c", f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != {VERSION!r})"]
    )
    if failed:
        print(f"{RELEASE} has no CPython {VERSION} that works", file=sys.stderr)
        return False
    pip = [PYTHON, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--root-user-action=ignore"]
    if run_inside([*pip, "--no-compile", "-e", ".[dev]"]):
        return False
    done.write_text(wanted)
    return True


def run_inside(command: Sequence[str]) -> int:
    """Run a command in the Debian, in the folder of this repository, and return its exit status."""
    shared = [each for each in (REPOSITORY, SCHEMAS) if each.exists()]
    lines = [f"mount -t proc proc {inside('/proc')}", f"mount --rbind /dev {inside('/dev')}"]
    for each in shared:
        Path(f"{DEBIAN}{each}").mkdir(parents=True, exist_ok=True)
        lines.append(f"mount --bind {shlex.quote(str(each))} {inside(each)}")
    start = f"cd {shlex.quote(str(REPOSITORY))} && exec {shlex.join(command)}"
    lines.append(f"exec chroot {shlex.quote(str(DEBIAN))} sh -c {shlex.quote(start)}")
    # The mounts are of this namespace alone: none is left below `build`, where `make clean` removes everything.
    environment = {**os.environ, "TMPDIR": "/tmp"}
    # What one process has compiled, the others load: the packages were installed without that.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(["unshare", "--mount", "sh", "-ec", "\n".join(lines)], env=environment).returncode


def inside(path: str | Path) -> str:
    return shlex.quote(f"{DEBIAN}{path}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
