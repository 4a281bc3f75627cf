"""`ClientOptions`: the options of a client, apart from the channel to its server."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Final, TypedDict

from ..base.checks import check_choice, check_int, check_seconds, check_sync_callback
from ..protocol.revisions import REVISIONS
from ..sampling import SamplingProvider
from ..session.server_requests import MAX_HANDLERS
from ..session.transport import AnyAuth, HeaderSource
from ..types import Implementation, LoggingLevel
from ..types.notifications import LOGGING_LEVELS
from .cache import NO_CACHE, CacheView, ResponseCache
from .changes import OnChange
from .handlers import Handlers, OnDisconnect, OnElicit, OnElicitUrl, OnLog, OnRoots
from .sampling import ApproveSample, OnSample

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
    wait_if_busy: float = 0.0
    cache: CacheView = NO_CACHE

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        check_choice("log_level", self.log_level, LOGGING_LEVELS)
        for name in ("on_log", "on_change", "on_disconnect"):
            callback: object = getattr(self, name)
            if callback is not None:
                check_sync_callback(name, callback)
        check_seconds("probe_timeout", self.probe_timeout)
        check_seconds("wait_if_busy", self.wait_if_busy)
        check_int("max_handlers", self.max_handlers, least=1)


# The keyword arguments of `Client.connect`, as type checkers see them.


class TransportKeywords(TypedDict, total=False):
    """The options of the transports. Each target has some of them; another one raises `TypeError`."""

    # of a URL
    headers: HeaderSource | None
    auth: AnyAuth | None
    connect_timeout: float
    # of a URL or a server in this process
    max_message: int
    # over HTTP
    post_timeout: float
    # over WebSocket
    ping_interval: float
    tls: ssl.SSLContext | None
    # of a command
    env: Mapping[str, str] | None
    cwd: str | os.PathLike[str] | None
    stderr: int | IO[bytes] | None
    max_line: int
    max_values: int
    # of a command or over WebSocket
    write_deadline: float
    # of a command or a server in this process
    shutdown_grace: float
    # of a server in this process
    buffer: int


class ConnectKeywords(TransportKeywords, total=False):
    """The keyword arguments of `Client.connect` that a `ClientGroup` passes on; `Client.connect` describes each.

    `on_change` and `on_disconnect` are the group's own: its `on_change` and `on_state`.
    """

    on_elicit: OnElicit | None
    on_elicit_url: OnElicitUrl | None
    on_sample: OnSample | None
    sample_tools: bool
    sample_context: bool
    sampling: SamplingProvider | None
    approve_sample: ApproveSample | None
    on_roots: OnRoots | None
    on_log: OnLog | None
    log_level: LoggingLevel
    mode: str
    name: str
    version: str
    probe_timeout: float
    cache: ResponseCache | None
    principal: str | None
    raise_exceptions: bool
    max_handlers: int
    handler_timeout: float
    reconnect: bool
    wait_if_busy: float
