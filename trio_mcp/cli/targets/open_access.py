"""Whether the server of a target may be served without authentication: what a proxy asks `trio-mcp run --check-open`."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from ...errors import ConfigurationError
from ...http.open_access import check_open, check_open_commands
from ...relay.behind import ASKS, ASKS_NOTHING, UNKNOWN
from ..errors import CommandError, Status
from .loading import load_python
from .passing import proxied
from .target import PythonTarget, Target


def check(target: Target, headers: Mapping[str, str]) -> int:
    """Return the exit status that says so, if it may or that is unknown.

    Raises:
        CommandError: it asks for authentication, with the status that says this; or it cannot be loaded.
    """
    server: object = load_python(target) if isinstance(target, PythonTarget) else proxied(target, headers)
    try:
        check_open(server)
        unknown = trio.run(check_open_commands, server)
    except ConfigurationError as error:
        raise CommandError(str(error), Status(ASKS)) from error
    return UNKNOWN if unknown else ASKS_NOTHING
