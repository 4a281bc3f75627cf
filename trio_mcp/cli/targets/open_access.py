"""Whether the server of a target may be served without authentication: what a proxy asks a command with `--check-open`."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from ...errors import ConfigurationError
from ...http.open_access import check_open, check_open_commands
from ...relay.behind import ASKS, ASKS_NOTHING, UNKNOWN
from ...server.running import LOADS_ONLY, RunCalled
from .loading import load_python
from .passing import proxied
from .target import PythonTarget, Target


def check(target: Target, headers: Mapping[str, str]) -> int:
    """Return the exit status that says whether the server asks for authentication. The error for the user is that of the proxy.

    Raises:
        CommandError: the target cannot be loaded.
    """
    return check_server(loaded(target) if isinstance(target, PythonTarget) else proxied(target, headers))


def loaded(target: PythonTarget) -> object:
    """Return the server of a file or module; one that ends with `server.run()` has that of the call, which `run` serves, too."""
    before = LOADS_ONLY.set(True)
    try:
        return load_python(target)
    except RunCalled as call:
        return call.server
    finally:
        LOADS_ONLY.reset(before)


def check_server(server: object) -> int:
    """Return and raise as `check`, for a server."""
    try:
        check_open(server)
        unknown = trio.run(check_open_commands, server)
    except ConfigurationError:
        return ASKS
    return UNKNOWN if unknown else ASKS_NOTHING
