"""Logins in files that only their user can read, and in memory.

Two processes that refresh one login at once would lose it: a server that detects the second use of a refresh token revokes all
tokens of the login. So a lock file surrounds the whole refresh. `flock` ends with its process, however that ends, and also works
between two clients of one process. The lock file is never deleted: two processes could hold the lock of two files then.

The files are not encrypted. A process that can read them could read the key, too.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import trio

from ...base.regular_files import open_regular, replacing
from ...base.systems import file_locks, needs_posix
from ...base.values import shown_url
from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from ..uris import canonical, over_http
from .stored import Login, dump_login, parse_login

FOLDER_VARIABLE: Final = "TRIO_MCP_AUTH_DIR"
MAX_FILE: Final = 256 * 1024
"""Bytes of one file."""
LOCK_SECONDS: Final = 60.0
"""Seconds to wait for a lock. Its holder refreshes, which takes 20 at most."""
POLL_SECONDS: Final = 0.02


def default_folder() -> Path:
    """Return the folder of the environment: `TRIO_MCP_AUTH_DIR`, or else one in `XDG_STATE_HOME`, or `~/.local/state`."""
    own = os.environ.get(FOLDER_VARIABLE)
    if own:
        return Path(own)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "trio-mcp" / "auth"


class TokenFiles:
    """Stores logins as files: one for each server, with the mode 0600, in a folder with the mode 0700.

    Args:
        folder: by default that of the environment variable `TRIO_MCP_AUTH_DIR`, else `$XDG_STATE_HOME/trio-mcp/auth`.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)

    def file_of(self, url: str) -> Path:
        """Return the file for a server."""
        return self.folder / f"{sha256(url.encode()).hexdigest()[:32]}.json"

    def has(self, url: str) -> bool:
        """Return whether there is a login at a server, or a file that cannot be read. Raises `ValueError` for a malformed URL."""
        path = self.file_of(canonical(over_http(url)))
        try:
            login = read_private(path)
        except AuthorizationError:
            return path.exists()
        return login is not None and login.has_tokens

    def known_urls(self) -> list[str]:
        """Return the URLs of the servers with a login that can be read, sorted."""
        found = []
        for path in self.folder.glob("[!.]*.json"):
            with suppress(AuthorizationError):
                found.append(read_private(path))
        return urls_of(found)

    async def read(self, url: str) -> Login | None:
        """Return the login at a server, or None.

        Raises:
            AuthorizationError: the file can be read by others, is a link, or is malformed; or others can write the folder.
        """
        await trio.lowlevel.checkpoint()
        self._check_folder()
        login = read_private(self.file_of(url))
        if login is not None and login.url != url:
            raise AuthorizationError(f"{self.file_of(url)} is of another server", kind=Kind.STORE)
        return login

    async def write(self, login: Login) -> None:
        """Store a login: a new file takes the place of the one before. Raises `AuthorizationError`."""
        await trio.lowlevel.checkpoint()
        self._make_folder()
        path = self.file_of(login.url)
        try:
            # A link would be replaced, but its permissions would be those of the file that it leads to.
            if path.is_symlink():
                raise OSError(errno.ELOOP, "it is a link", str(path))
            # Its permissions would be kept.
            if path.exists():
                path.chmod(0o600)
            with replacing(path, 0o600) as file:
                file.write(dump_login(login).encode())
        except OSError as error:
            raise cannot("written", path, error) from None

    async def delete(self, url: str) -> None:
        """Delete the login at a server; the lock file stays. Raises `AuthorizationError`."""
        await trio.lowlevel.checkpoint()
        self._check_folder()
        try:
            self.file_of(url).unlink(missing_ok=True)
        except OSError as error:
            raise cannot("deleted", self.file_of(url), error) from None

    async def urls(self) -> list[str]:
        """Return the URLs of the servers with a login, sorted. Raises `AuthorizationError`."""
        await trio.lowlevel.checkpoint()
        self._check_folder()
        try:
            paths = sorted(self.folder.glob("*.json"))
        except OSError as error:
            raise cannot("read", self.folder, error) from None
        # Another process may delete one meanwhile.
        return urls_of([read_private(path) for path in paths if not path.name.startswith(".")])

    @asynccontextmanager
    async def lock(self, url: str) -> AsyncGenerator[None]:
        """Hold the lock of a server for the length of the block.

        Raises:
            AuthorizationError: another process has held it for `LOCK_SECONDS`, or the file cannot be opened.

        A cancel while it waits leaves nothing locked.
        """
        if sys.platform == "win32":
            raise on_windows()
        self._make_folder()
        path = self.file_of(url).with_suffix(".lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise cannot("opened", path, error) from None
        try:
            await wait_for_lock(descriptor, path)
            yield
        finally:
            os.close(descriptor)

    def _make_folder(self) -> None:
        if sys.platform == "win32":
            raise on_windows()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise cannot("made", self.folder, error) from None
        self._check_folder()

    def _check_folder(self) -> None:
        """Raise `AuthorizationError` if others can delete logins, or put other files in their place.

        Its mode is not changed here: it may be a folder that is shared on purpose, such as /tmp.
        """
        if sys.platform == "win32":
            raise on_windows()
        try:
            found = self.folder.stat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise cannot("read", self.folder, error) from None
        if found.st_uid != os.getuid():
            text = f"{self.folder} is the folder of another user: name another one in {FOLDER_VARIABLE}"
            raise AuthorizationError(text, kind=Kind.STORE)
        if found.st_mode & 0o022:
            text = f"other users can write to {self.folder}: chmod 700 {self.folder}, or name another one in {FOLDER_VARIABLE}"
            raise AuthorizationError(text, kind=Kind.STORE)

    def __repr__(self) -> str:
        return f"TokenFiles({str(self.folder)!r})"


async def wait_for_lock(descriptor: int, path: Path) -> None:
    """Lock an open file. Polled: a thread that waits for the lock could not be cancelled, and would hold it afterwards."""
    locks = file_locks()
    with trio.move_on_after(LOCK_SECONDS):
        while True:
            await trio.lowlevel.checkpoint()
            try:
                locks.flock(descriptor, locks.LOCK_EX | locks.LOCK_NB)
                return
            except BlockingIOError:
                await trio.sleep(POLL_SECONDS)
            except OSError as error:
                # As on file systems of networks that have no locks.
                raise cannot("locked", path, error) from None
    raise AuthorizationError(f"another process has held {path} for {LOCK_SECONDS:g} seconds", kind=Kind.STORE)


def read_private(path: Path) -> Login | None:
    """Return the login in a file; None if there is no file. Raises `AuthorizationError`."""
    if sys.platform == "win32":
        raise on_windows()
    try:
        # What was opened is looked at: the path may name another file by then.
        with open(open_regular(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            found = os.fstat(file.fileno())
            content = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise cannot("read", path, error) from None
    if found.st_uid != os.getuid():
        raise AuthorizationError(f"{path} is the file of another user: delete it", kind=Kind.STORE)
    if found.st_mode & 0o077:
        raise AuthorizationError(f"other users can read {path}: chmod 600 {path}", kind=Kind.STORE)
    if len(content) > MAX_FILE:
        raise AuthorizationError(f"{path} has more than {MAX_FILE} bytes: delete it", kind=Kind.STORE)
    return parse_login(content, str(path))


def urls_of(found: Iterable[Login | None]) -> list[str]:
    return sorted(login.url for login in found if login is not None and login.has_tokens)


def on_windows() -> AuthorizationError:
    return AuthorizationError(f"{needs_posix('storing logins in files')}, or use MemoryTokens()", kind=Kind.STORE)


def cannot(done: str, path: Path, error: OSError) -> AuthorizationError:
    return AuthorizationError(f"{path} cannot be {done}: {error.strerror or error}", kind=Kind.STORE)


class MemoryTokens:
    """Stores logins in this process, for as long as the object lives; also for clients in several threads."""

    def __init__(self) -> None:
        self._logins: dict[str, Login] = {}
        self._locks: dict[str, threading.Lock] = {}

    async def read(self, url: str) -> Login | None:
        """Return the login at a server, or None."""
        await trio.lowlevel.checkpoint()
        return self._logins.get(url)

    async def write(self, login: Login) -> None:
        """Store a login in place of the one before."""
        await trio.lowlevel.checkpoint()
        self._logins[login.url] = login

    async def delete(self, url: str) -> None:
        """Delete the login at a server, if there is one."""
        await trio.lowlevel.checkpoint()
        self._logins.pop(url, None)

    async def urls(self) -> list[str]:
        """Return the URLs of the servers with a login, sorted."""
        await trio.lowlevel.checkpoint()
        return urls_of(self._logins.values())

    @asynccontextmanager
    async def lock(self, url: str) -> AsyncGenerator[None]:
        """Hold the lock of a server for the length of the block."""
        held = self._locks.setdefault(url, threading.Lock())
        await trio.lowlevel.checkpoint()
        # Polled, as that of a file: a client in another thread has another Trio run.
        while not held.acquire(blocking=False):  # noqa: ASYNC110
            await trio.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            held.release()

    def __repr__(self) -> str:
        return f"<MemoryTokens of {', '.join(map(shown_url, self._logins)) or 'no server'}>"
