"""`ClientOptions`: the options of a client, apart from the channel to its server."""

from __future__ import annotations

import math
import os
import secrets
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import IO, TYPE_CHECKING, Final, TypedDict, cast

from ..base.checks import (
    check_choice,
    check_instance,
    check_int,
    check_names,
    check_seconds,
    check_str,
    check_str_mapping,
    check_sync_callback,
    mistake,
    nearest,
)
from ..base.named_tuples import NamedTuple
from ..errors import PeerError
from ..protocol.codec.unknown import UnknownParams, Unread
from ..protocol.jsonrpc import MISSING_CAPABILITY
from ..protocol.revisions import IDEMPOTENCY_KEY, REVISIONS
from ..sampling import SamplingProvider
from ..session.notification_dispatch import OnProgress
from ..session.server_requests import MAX_HANDLERS
from ..session.transport import AnyAuth, HeaderSource
from ..telemetry import open_telemetry
from ..types import (
    CallToolRequestParams,
    CompleteRequestParams,
    CompletionArgument,
    CompletionContext,
    Implementation,
    JsonObject,
    JsonValue,
    LoggingLevel,
    PromptReference,
    Reference,
    ResourceTemplateReference,
)
from ..types.log_levels import LOGGING_LEVELS
from .cache import NO_CACHE, CacheView, ResponseCache
from .changes import OnChange
from .handlers import Handlers, OnDisconnect, OnElicit, OnElicitUrl, OnLog, OnRoots
from .sampling import ApproveSample, OnSample

if TYPE_CHECKING:
    from ..telemetry import Telemetry

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
    telemetry: Telemetry | None = field(default_factory=open_telemetry)
    on_unknown: Callable[[str, UnknownParams], None] | None = None
    """Called with each notification that passes unread; None ignores those that no revision has. For a proxy."""
    unread: Unread = Unread.NONE
    """Which messages of the server pass unread."""
    last_id: int = 0
    """Of the requests that were sent over this connection before."""

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
    """The keyword arguments of `Client.connect`, which describes each, without `on_change` and `on_disconnect`.

    A `ClientGroup` passes these on; its own `on_change` and `on_state` are in place of the other two.
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
    telemetry: bool
    telemetry_content: bool


class ClientKeywords(ConnectKeywords, total=False):
    """All keyword arguments of `Client.connect`, which describes each."""

    on_change: OnChange | None
    on_disconnect: OnDisconnect | None


OF_CLIENTS: Final = ClientKeywords.__optional_keys__ - TransportKeywords.__optional_keys__
"""The keyword arguments that are not options of the transport."""

AS_GIVEN: Final = OF_CLIENTS & {each.name for each in fields(ClientOptions)} - {"cache", "telemetry"}
"""Those that are an option of the client as they are given."""

# Naming the options of a client: those that declare a capability, those that other libraries call otherwise, and arguments.

DECLARED_BY: Final[Mapping[str, str]] = {
    "elicitation": "on_elicit=",
    "elicitation.form": "on_elicit=",
    "elicitation.url": "on_elicit_url=",
    "roots": "on_roots=",
    "sampling": "on_sample= or sampling=provider",
    "sampling.context": "sample_context=True and an on_sample= that adds the context of servers",
    "sampling.tools": "sampling=provider, or sample_tools=True and an on_sample= that takes tools",
}
"""What a client passes to declare a capability."""

OTHER_NAMES: Final[Mapping[str, str]] = {
    "elicitation_callback": "on_elicit=",
    "elicitation_handler": "on_elicit=",
    "list_roots_callback": "on_roots=",
    "log_handler": "on_log=",
    "logging_callback": "on_log=",
    "message_handler": "on_change=",
    "progress_handler": "call_tool(..., on_progress=)",
    "roots": "on_roots=",
    "sampling_callback": "on_sample=",
    "sampling_capabilities": "sample_tools= and sample_context=",
    "sampling_handler": "on_sample=",
    "timeout": "timeout= of each call, as in client.call_tool(..., timeout=5); probe_timeout= is that of opening",
}
"""The option that has the name of another library's."""

OF_CALLS: Final[Mapping[str, str]] = {
    "progress_callback": "on_progress=",
    "progress_handler": "on_progress=",
    "read_timeout_seconds": "timeout=",
}
"""The same of a call."""

OF_CLIENT: Final[Mapping[str, str]] = {
    "call_tool_mcp": "write client.call_tool(name, arguments), whose result has content, structured_content and is_error",
    "close": "write await client.aclose(), or async with client",
    "complete_mcp": "write client.complete(...)",
    "get_prompt_mcp": "write client.get_prompt(name, arguments)",
    "initialize": "write await client.open(), or async with client",
    "initialize_result": "client.server_info, client.server_capabilities and client.instructions are what the server declared",
    "is_connected": "client.is_open says whether it is open",
    "list_prompts_mcp": "write client.list_prompts()",
    "list_resource_templates_mcp": "write client.list_resource_templates()",
    "list_resources_mcp": "write client.list_resources()",
    "list_tools_mcp": "write client.list_tools()",
    "read_resource_mcp": "write client.read_resource(uri)",
    "send_roots_list_changed": "write client.roots_changed()",
    "session": "the client sends the requests itself, as in client.call_tool(name, arguments)",
    "set_logging_level": 'write client.set_log_level("info")',
    "transport": "client.target is what it connects to, and client.transport_options are its options",
}
"""What to write instead of an attribute of another library's client."""


def check_other_names(options: Iterable[str]) -> None:
    """Raise `TypeError` for an option under the name that another library gives it; the message has the one to write."""
    for option in options:
        if option in OTHER_NAMES:
            raise TypeError(f"Client.connect() has no option {option!r}: it is {OTHER_NAMES[option]}")


def check_call_options(method: str, named: object, given: Iterable[str], known: Collection[str]) -> None:
    """Raise `TypeError` for an option that a call does not have; the message shows how its arguments are written.

    Args:
        method: of the client, whose second argument is a mapping.
        named: the tool or prompt.
    """
    unknown = [name for name in given if name not in known]
    if not unknown:
        return
    if unknown[0] in OF_CALLS:
        raise TypeError(f"{method}() has no option {unknown[0]!r}: it is {OF_CALLS[unknown[0]]}")
    # Other libraries, and functions, take the arguments of a tool as keyword arguments.
    written = f"{method}({named!r:.80}, {{{', '.join(f'{name!r}: ...' for name in unknown)}}})"
    question = nearest(unknown[0], known)
    advice = f"{question} An argument is written {written}" if question else f"arguments are a mapping: {written}"
    raise TypeError(f"{method}() has no option {unknown[0]!r}: {advice}")


def add_option_note(error: PeerError) -> None:
    """Add a note to the error of a server that misses a capability: which options declare it."""
    data = error.data
    if error.code != MISSING_CAPABILITY or not isinstance(data, dict):
        return
    wanted = [DECLARED_BY[name] for name in missing_names(data.get("requiredCapabilities")) if name in DECLARED_BY]
    if wanted:
        error.add_note(f"Client.connect() declares it with {'; and '.join(wanted)}")


def missing_names(required: JsonValue) -> list[str]:
    """Return the names of missing capabilities, such as "sampling.tools"; of a capability without details, its own."""
    if not isinstance(required, dict):
        return []
    return [
        name
        for capability, details in required.items()
        for name in (
            [f"{capability}.{detail}" for detail in details] if isinstance(details, dict) and details else [capability]
        )
    ]


# How a call is made: its keyword arguments, and the params of its request.

MAX_ROUNDS: Final = 10
"""Rounds after which a call fails; other SDKs have the same limit (protocol.md 3.7)."""


class CallKeywords(TypedDict, total=False):
    """The keyword arguments of a call, as type checkers see them; `Client.call_tool` describes each."""

    timeout: float
    on_progress: OnProgress | None
    meta: JsonObject | None
    max_rounds: int
    idle_timeout: float


class CallOptions(NamedTuple):
    """How a call is made: its keyword arguments with their defaults."""

    timeout: float = math.inf
    on_progress: OnProgress | None = None
    meta: JsonObject | None = None
    max_rounds: int = MAX_ROUNDS
    idle_timeout: float = math.inf

    def check(self) -> None:
        """Raise `TypeError` or `ValueError` if an option is invalid."""
        # The defaults are valid. Most calls pass nothing else, and should not pay for checks.
        if self.meta is not None:
            check_instance("meta", self.meta, dict, "a dict of members for `_meta`")
        if self.timeout is not math.inf:
            check_seconds("timeout", self.timeout, hint="math.inf for no limit")
        if self.on_progress is not None:
            check_sync_callback("on_progress", self.on_progress)
        if self.idle_timeout is not math.inf:
            check_seconds("idle_timeout", self.idle_timeout, positive=True, hint="math.inf for no limit")
        if self.max_rounds is not MAX_ROUNDS:
            check_int("max_rounds", self.max_rounds)


OPTIONS: Final = frozenset(CallOptions._fields)


def call_options(method: str, named: object, given: CallKeywords) -> CallOptions:
    """Return the options of a call.

    Args:
        named: the tool, prompt or resource.

    Raises:
        TypeError: the method of the client has no option of that name.
    """
    if not OPTIONS.issuperset(given):
        known = (*OPTIONS, "returns", "raise_on_error", "task") if method == "call_tool" else OPTIONS
        if method != "read_resource":
            check_call_options(method, named, given, known)
        check_names(given, known, f"{method}()")
    return CallOptions(**given)


def tool_params(
    name: str, arguments: Mapping[str, object] | None, options: CallOptions, instance: str | None
) -> CallToolRequestParams:
    """Return the params of a call, with an idempotency key if the server knows those.

    Args:
        instance: of the server; None if it does not know keys.

    Raises:
        TypeError, ValueError: an argument or an option is invalid.
    """
    options.check()
    check_str("the name of the tool", name)
    meta = with_key(options.meta, instance)
    return CallToolRequestParams(name=name, arguments=tool_arguments(arguments), meta=meta)


def with_key(meta: JsonObject | None, instance: str | None) -> JsonObject | None:
    """Return the `_meta` of a call with a new idempotency key if the server knows keys; one that the caller gave stays."""
    if instance is None:
        return meta
    key: JsonObject = {IDEMPOTENCY_KEY: secrets.token_urlsafe(16)}
    return {**key, **meta} if meta else key


def tool_arguments(arguments: Mapping[str, object] | None) -> dict[str, JsonValue]:
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise TypeError(
            mistake("the arguments of the tool", 'a mapping of names to values, such as {"city": "Lisbon"}', arguments)
        )
    # What is not JSON is an error when it is sent.
    return dict(cast("Mapping[str, JsonValue]", arguments))


def complete_params(
    ref: Reference, argument: str, value: str, context: Mapping[str, str] | None
) -> CompleteRequestParams:
    """Return the params of `completion/complete`; raise `TypeError` if an argument has the wrong type."""
    if not isinstance(ref, PromptReference | ResourceTemplateReference):
        raise TypeError(
            "ref says whose argument it is: PromptReference(name=...) or ResourceTemplateReference(uri=...), "
            f"of trio_mcp.types, not {ref!r:.80}"
        )
    check_str("argument", argument)
    check_str("value", value)
    known = None if context is None else CompletionContext(arguments=check_str_mapping("context", context))
    return CompleteRequestParams(ref=ref, argument=CompletionArgument(name=argument, value=value), context=known)
