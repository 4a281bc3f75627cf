"""Whether the server of a target may be served without authentication: what a proxy asks `trio-mcp run --check-open`."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from ...errors import ConfigurationError
from ...http.open_access import check_open, check_open_commands
from ...relay.behind import ASKS, ASKS_NOTHING, UNKNOWN
from .loading import load_python
from .passing import proxied
from .target import PythonTarget, Target


def check(target: Target, headers: Mapping[str, str]) -> int:
    """Return the exit status that says so. The proxy that asks says what is wrong, and how to mend it.

    Raises:
        CommandError: the target cannot be loaded.
    """
    server: object = load_python(target) if isinstance(target, PythonTarget) else proxied(target, headers)
    try:
        check_open(server)
        unknown = trio.run(check_open_commands, server)
    except ConfigurationError:
        return ASKS
    return UNKNOWN if unknown else ASKS_NOTHING
