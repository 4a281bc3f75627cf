"""Logins in the keyring of the system, for `pip install trio-mcp[keyring]`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeVar

import keyring
import keyring.errors
import trio

from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from .stored import Login, dump_login, parse_login
from .token_files import TokenFiles

SERVICE: Final = "trio-mcp"
INDEX: Final = "servers"
"""The entry with the URLs: a keyring does not list what it has."""

T = TypeVar("T")


class KeyringTokens:
    """Stores logins in the keyring of the system. Lock files are in the folder of `TokenFiles`.

    Raises:
        AuthorizationError: from each method, if the keyring cannot be used.
    """

    def __init__(self) -> None:
        self._files = TokenFiles()

    async def read(self, url: str) -> Login | None:
        """Return the login at a server, or None."""
        found = await in_thread(lambda: keyring.get_password(SERVICE, url))
        return None if found is None else parse_login(found, f"the entry of {SERVICE} in the keyring")

    async def write(self, login: Login) -> None:
        """Store a login in place of the one before."""
        await in_thread(lambda: keyring.set_password(SERVICE, login.url, dump_login(login)))
        await self._change_index(lambda urls: urls | {login.url})

    async def delete(self, url: str) -> None:
        """Delete the login at a server, if there is one."""
        if await self.read(url) is not None:
            await in_thread(lambda: keyring.delete_password(SERVICE, url))
        await self._change_index(lambda urls: urls - {url})

    async def urls(self) -> list[str]:
        """Return the URLs of the servers with a login, sorted."""
        found = await in_thread(lambda: keyring.get_password(SERVICE, INDEX))
        urls: object = json.loads(found or "[]")
        return sorted(url for url in urls if isinstance(url, str)) if isinstance(urls, list) else []

    def lock(self, url: str) -> AbstractAsyncContextManager[None]:
        """Return a context manager that holds the lock of a server; see `TokenFiles.lock`."""
        return self._files.lock(url)

    async def _change_index(self, change: Callable[[set[str]], set[str]]) -> None:
        async with self._files.lock(INDEX):
            before = await self.urls()
            after = sorted(change({*before}))
            if after != before:
                await in_thread(lambda: keyring.set_password(SERVICE, INDEX, json.dumps(after)))

    def __repr__(self) -> str:
        return "KeyringTokens()"


async def in_thread(use: Callable[[], T]) -> T:
    """Return what a function of the keyring returns; it may wait for the user."""
    try:
        return await trio.to_thread.run_sync(use)
    except keyring.errors.KeyringError as error:
        why = type(error).__name__
    raise AuthorizationError(f"the keyring of the system cannot be used: {why}", kind=Kind.STORE)
