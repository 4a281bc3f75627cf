"""The keyword arguments of `Client.connect`, as type checkers see them."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import IO, TypedDict

from ..sampling import SamplingProvider
from ..session.transport import HeaderSource
from ..types import LoggingLevel
from .cache import ResponseCache
from .handlers import OnElicit, OnElicitUrl, OnLog, OnRoots
from .sampling import ApproveSample, OnSample


class TransportKeywords(TypedDict, total=False):
    """The options of the transports. Each target has some of them; another one raises `TypeError`."""

    # of a URL
    headers: HeaderSource | None
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
