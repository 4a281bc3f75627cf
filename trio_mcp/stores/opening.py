"""Opening the store of a server: what `ServiceOptions(store=...)` means."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Final, TypeAlias, cast

from .. import stores
from ..base.checks import nearest
from ..errors import ConfigurationError
from ..protocol.sealing.at_rest import Vault
from ..protocol.sealing.request_state import KeyRing
from ..runtime import MemoryBudget
from ..storage import SharedStore, Store
from .memory_store import MemoryStore

GROUP: Final = "trio_mcp.stores"
"""The entry-point group of stores: each is a function from a text, such as a path, to an async context manager of a `Store`."""

OpenStore: TypeAlias = Callable[[str], AbstractAsyncContextManager[Store]]

MAKE_A_KEY: Final = (
    'python -c "import base64, secrets; print(base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())"'
)


@asynccontextmanager
async def open_store(given: str | Store | None, keys: KeyRing | None, memory: MemoryBudget) -> AsyncIterator[Store]:
    """Open a store; leaving the block closes it, unless it was given opened. A durable one is sealed.

    Args:
        given: a path such as "state.db", a scheme and what belongs to it such as "sqlite:state.db", an opened store, or None for
            the memory of this process.
        keys: the first seals, all of them open.
        memory: what a store in memory draws from.

    Raises:
        ConfigurationError: there is no such store, it cannot be opened, or it is durable and there are no keys.
    """
    if given is None or given == "memory:":
        with closing(MemoryStore(memory=memory)) as store:
            yield store
        return
    if not isinstance(given, str) and not given.durable:
        yield given
        return
    name = given if isinstance(given, str) else repr(given)
    if keys is None:
        # Before it is opened, which would make an empty file.
        raise ConfigurationError(
            f"the store {name} needs keys, because everything in it is sealed: set TRIO_MCP_KEYS to a key, or to the name of a "
            f"file with one. This makes a key:\n  {MAKE_A_KEY}"
        )
    if not isinstance(given, str):
        yield sealed(given, keys, name)
        return
    scheme, separator, target = given.partition(":")
    # A path of Windows begins with a letter and a colon.
    if not separator or len(scheme) == 1:
        scheme, target = "sqlite", given
    async with find_store(scheme)(target) as opened:
        yield sealed(opened, keys, name)


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
    entry = built_in(scheme)
    if entry is None:
        found = entry_points(group=GROUP)
        if scheme not in found.names:
            known = ", ".join(sorted(found.names)) or "none"
            meant = nearest(scheme, found.names)
            advice = f": {meant}" if meant else "."
            raise ConfigurationError(
                f"no store {scheme!r} is installed{advice} Installed: {known}. For a path with a colon write sqlite:PATH"
            )
        entry = found[scheme]
    return cast("OpenStore", entry.load())


def built_in(scheme: str) -> EntryPoint | None:
    """Return one of this distribution's own, which are looked for first: reading what every distribution offers takes longer."""
    try:
        own = distribution("trio-mcp").entry_points
    except PackageNotFoundError:
        return None
    return next((entry for entry in own if entry.group == GROUP and entry.name == scheme), None)
