"""Opening the store of a server: what `ServiceOptions(store=...)` means."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from importlib.metadata import EntryPoint, entry_points
from typing import Final, TypeAlias, cast
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from .. import stores
from ..base.checks import nearest
from ..base.values import shown_url
from ..errors import ConfigurationError
from ..protocol.sealing.at_rest import Vault
from ..protocol.sealing.request_state import KeyRing
from ..runtime import MemoryBudget
from ..storage import SharedStore, Store
from .memory_store import MemoryStore

GROUP: Final = "trio_mcp.stores"
"""The entry-point group of stores: each is a function from a text, such as a path, to an async context manager of a `Store`."""
BUILT_IN: Final = {
    "sqlite": "trio_mcp.stores.sqlite:open_sqlite",
    "redis": "trio_mcp.stores.redis:open_redis",
    "rediss": "trio_mcp.stores.redis:open_rediss",
    "unix": "trio_mcp.stores.redis:open_redis_socket",
    "postgresql": "trio_mcp.stores.postgres:open_postgres",
    "postgres": "trio_mcp.stores.postgres:open_postgres",
}
"""The stores of this package. They are no entry points: reading what every distribution offers takes longer."""
EXTRAS: Final = {"redis": "redis", "psycopg": "postgres"}
"""The extras of this package, by the module that one installs."""
NAMESPACED: Final = ("redis", "rediss", "unix", "postgresql", "postgres")
"""Stores that servers share, each with the namespace that its URL names."""

VARIABLE: Final = "TRIO_MCP_STORE"
"""The variable with the store of a server that names none."""

NO_URL: Final = "the URL of a store in a database begins with its scheme and ://, like redis://cache:6379/0"
"""Shows nothing of the given text: in a malformed URL, the password may be anywhere."""

OpenStore: TypeAlias = Callable[[str], AbstractAsyncContextManager[Store]]

MAKE_A_KEY: Final = (
    'python -c "import base64, secrets; print(base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())"'
)


@asynccontextmanager
async def open_store(
    given: str | Store | None, keys: KeyRing | None, memory: MemoryBudget, server: str = ""
) -> AsyncIterator[Store]:
    """Open a store; leaving the block closes it, unless it was given open. A durable store is encrypted.

    Args:
        given: a path such as "state.db", a URL such as "redis://cache:6379/0", another scheme and what belongs to it, an opened
            store, or None for that of `TRIO_MCP_STORE`, or else the memory of this process.
        keys: the first key encrypts, all of them decrypt.
        memory: what a store in memory draws from.
        server: the name of the server: the namespace in a database of several servers, unless its URL names another one.

    Raises:
        ConfigurationError: there is no such store, it cannot be opened, or it is durable and there are no keys.
    """
    if given is None:
        given = os.environ.get(VARIABLE) or None
    if given is None or given == "memory:":
        with closing(MemoryStore(memory=memory)) as store:
            yield store
        return
    if not isinstance(given, str) and not given.durable:
        yield given
        return
    if isinstance(given, str) and has_namespaces(given):
        split_url(given)
    name = shown_url(given) if isinstance(given, str) else repr(given)
    if keys is None:
        # Before it is opened, which would make an empty file.
        raise ConfigurationError(
            f"the store {name} needs keys, because everything in it is sealed: set TRIO_MCP_KEYS to a key, or to the name of a "
            f"file with one. This makes a key:\n  {MAKE_A_KEY}"
        )
    if not isinstance(given, str):
        yield sealed(given, keys, name)
        return
    scheme, target = scheme_and_target(given)
    if has_namespaces(given) and server:
        target = with_namespace(target, server)
    async with find_store(scheme)(target) as opened:
        yield sealed(opened, keys, name)


def scheme_and_target(given: str) -> tuple[str, str]:
    """Return the scheme of a store and what follows it; that of a path is "sqlite".

    Raises:
        ConfigurationError: it is the URL of a database without its colon.
    """
    if given.partition("//")[0] in NAMESPACED:
        raise ConfigurationError(NO_URL)
    scheme, separator, target = given.partition(":")
    # A path of Windows begins with a letter and a colon.
    return (scheme, target) if separator and len(scheme) > 1 else ("sqlite", given)


def has_namespaces(given: str) -> bool:
    """Return whether several servers may share a store, each with its namespace."""
    return scheme_and_target(given)[0] in NAMESPACED


def with_namespace(target: str, server: str) -> str:
    """Return a URL without its scheme with the namespace of a server, unless it has one."""
    split_url(target)
    # Not by `urlunsplit`, which drops the slashes of an empty host.
    place, _, query = target.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    if any(name == "namespace" for name, _ in options):
        return target
    return f"{place}?{urlencode([*options, ('namespace', server)])}"


def split_url(url: str) -> SplitResult:
    """Return the parts of the URL of a store.

    Raises:
        ConfigurationError: it has no "://", or a character that must be encoded. The error shows nothing of it: with a slash in
            the password, that is no longer where it is expected.
    """
    if not (url if url.startswith("//") else url.partition(":")[2]).startswith("//"):
        raise ConfigurationError(NO_URL)
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None or parts.fragment or (parts.netloc and "@" in parts.path + parts.query):
        raise ConfigurationError(
            "the URL of a store has a character that must be encoded: in its user and its password write %2F for /, %3F for ?, "
            "%23 for #, %40 for @ and %25 for %"
        )
    return parts


def sealed(opened: Store, keys: KeyRing, name: str) -> Store:
    """Return a store that seals what it stores in an opened one; a shared one if that is."""
    if isinstance(opened, SharedStore):
        return stores.sealed.SealedSharedStore(opened, Vault(keys), name)
    return stores.sealed.SealedStore(opened, Vault(keys), name)


def find_store(scheme: str) -> OpenStore:
    """Return the function that opens stores of this scheme, from the entry-point group.

    Raises:
        ConfigurationError: none is installed; the message lists those that are.
    """
    if scheme in BUILT_IN:
        entry = EntryPoint(scheme, BUILT_IN[scheme], GROUP)
    else:
        found = entry_points(group=GROUP)
        if scheme not in found.names:
            names = sorted({*BUILT_IN, *found.names})
            meant = nearest(scheme, names)
            advice = f": {meant}" if meant else "."
            known = ", ".join(names)
            raise ConfigurationError(
                f"no store {scheme!r} is installed{advice} Installed: {known}. For a path with a colon write sqlite:PATH"
            )
        entry = found[scheme]
    try:
        return cast("OpenStore", entry.load())
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise ConfigurationError(
            f"the store {scheme}: needs the package {error.name}: pip install 'trio-mcp[{EXTRAS[error.name]}]'"
        ) from None
