"""`ClientOptions`: the options of a client, apart from the channel to its server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..checks import check_choice, check_int, check_seconds, check_sync_callback
from ..protocol.revisions import REVISIONS
from ..session.server_requests import MAX_HANDLERS
from ..types import Implementation, LoggingLevel
from ..types.logging_levels import LOGGING_LEVELS
from .cache import NO_CACHE, CacheView
from .changes import OnChange
from .handlers import Handlers, OnDisconnect, OnLog

MODES: Final = ("auto", "modern", "legacy", *REVISIONS)
"""The values of the option `mode`."""

PROBE_TIMEOUT: Final = 5.0
"""Seconds that a server may take to answer `server/discover` before the client takes it for a legacy one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The options of a client; `Client.connect` describes each.

    Raises:
        TypeError, ValueError: an option is invalid.
    """

    info: Implementation
    handlers: Handlers = field(default_factory=Handlers)
    max_handlers: int = MAX_HANDLERS
    on_log: OnLog | None = None
    on_change: OnChange | None = None
    on_disconnect: OnDisconnect | None = None
    log_level: LoggingLevel = "info"
    mode: str = "auto"
    probe_timeout: float = PROBE_TIMEOUT
    cache: CacheView = NO_CACHE

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        check_choice("log_level", self.log_level, LOGGING_LEVELS)
        for name in ("on_log", "on_change", "on_disconnect"):
            callback: object = getattr(self, name)
            if callback is not None:
                check_sync_callback(name, callback)
        check_seconds("probe_timeout", self.probe_timeout)
        check_int("max_handlers", self.max_handlers, least=1)
