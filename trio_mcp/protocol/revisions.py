"""The revisions of MCP as data: the methods of each one, with their direction, their types and their capability.

A revision is written as its difference from the one before, so that this file reads like the specification's change
logs. `tests/test_eras.py` lists the modules that may ask for the revision. The wire shapes
themselves barely differ; what an older revision lacks inside a shape is in `codec/downlevel.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Final

from ..errors import RemoteProtocolError
from ..types import (
    CallToolRequestParams,
    CallToolResult,
    CancelledNotificationParams,
    CompleteRequestParams,
    CompleteResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    DiscoverResult,
    ElicitationCompleteNotificationParams,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    InitializeRequestParams,
    InitializeResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListRootsResult,
    ListToolsResult,
    LoggingMessageNotificationParams,
    Model,
    NotificationParams,
    PaginatedRequestParams,
    ProgressNotificationParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParams,
    ResourceUpdatedNotificationParams,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)
from .jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    MISSING_CAPABILITY,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    URL_ELICITATION_REQUIRED,
)

NEWEST_LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"


class Side(Enum):
    """The two ends of a conversation."""

    CLIENT = "client"
    SERVER = "server"


class Era(Enum):
    """LEGACY opens with `initialize` and keeps a session; MODERN carries its context in each request."""

    LEGACY = "legacy"
    MODERN = "modern"


@dataclass(frozen=True, slots=True)
class Method:
    """A request or a notification of one revision.

    Attributes:
        senders: the sides that may send it.
        result: None for notifications.
        gate: the capability that must be declared, as `types.declares` takes it, or None. Its first word says whose it
            is: `elicitation`, `roots` and `sampling` are the client's, all others the server's.
        modes: other params types, by the value of the `mode` member that selects them.
    """

    name: str
    senders: tuple[Side, ...]
    params: type[Model]
    result: type[Model] | None = None
    gate: str | None = None
    modes: Mapping[str, type[Model]] = field(default_factory=dict[str, type[Model]])


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision of MCP.

    Attributes:
        inputs: what a server may ask of its client inside an interim result (2026-07-28); empty before.
        missing_capability: the error code for a capability that the client did not declare.
        missing_capability_is_result: a tool answers with an error result instead of this code. Before 2026-07-28 the code has no
            separate meaning, and hosts raise for it and show the model nothing; an official SDK returns a result there.
        missing_resource: the error code for a resource that does not exist.
        url_required: the error code for a call that needs its user to open a page first; None if there is no such error.
        hides_gated: a listing leaves out what this client could not call. Before 2026-07-28 it belongs to a session and may;
            since then it may not vary (M-ST-3s).
        mirrors: HTTP headers repeat what a request says (M-HTTP-3c).
        batches: several messages may come in one array (2025-03-26 alone).
        polling: a response stream over HTTP begins with a priming event, and may end before the answer (L-HTTP-7s).
        sampling_tools: a model can be offered tools (since 2025-11-25), whatever a client of an older revision declares.
    """

    name: str
    era: Era
    requests: Mapping[str, Method]
    notifications: Mapping[str, Method]
    inputs: Mapping[str, Method]
    missing_capability: int = INVALID_REQUEST
    missing_capability_is_result: bool = True
    missing_resource: int = RESOURCE_NOT_FOUND
    url_required: int | None = None
    hides_gated: bool = True
    mirrors: bool = False
    batches: bool = False
    polling: bool = False
    sampling_tools: bool = False


def unsupported_version(requested: str) -> RemoteProtocolError:
    """Return the error for an unsupported version, which lists the supported ones (M-VER-1s)."""
    return RemoteProtocolError(
        f"Unsupported protocol version: {requested[:64]}",
        code=UNSUPPORTED_VERSION,
        data={"supported": list(SUPPORTED), "requested": requested[:64]},
    )


def _by_name(*methods: Method) -> Mapping[str, Method]:
    return MappingProxyType({method.name: method for method in methods})


def _changed(
    methods: Mapping[str, Method], adds: Iterable[Method], drops: Iterable[str] = frozenset()
) -> Mapping[str, Method]:
    kept = {name: method for name, method in methods.items() if name not in set(drops)}
    return MappingProxyType({**kept, **_by_name(*adds)})


_C2S = (Side.CLIENT,)
_S2C = (Side.SERVER,)
_BOTH = (Side.CLIENT, Side.SERVER)

_SAMPLE = Method("sampling/createMessage", _S2C, CreateMessageRequestParams, CreateMessageResult, "sampling")
_ROOTS = Method("roots/list", _S2C, RequestParams, ListRootsResult, "roots")
_COMPLETE = Method("completion/complete", _C2S, CompleteRequestParams, CompleteResult)
_ELICIT_FORM = Method("elicitation/create", _S2C, ElicitRequestFormParams, ElicitResult, "elicitation")
_ELICIT = replace(_ELICIT_FORM, modes={"url": ElicitRequestURLParams})
_ELICITED = Method(
    "notifications/elicitation/complete", _S2C, ElicitationCompleteNotificationParams, gate="elicitation.url"
)
_PROGRESS = Method("notifications/progress", _BOTH, ProgressNotificationParams)

_2024_11_05 = Revision(
    "2024-11-05",
    Era.LEGACY,
    requests=_by_name(
        Method("initialize", _C2S, InitializeRequestParams, InitializeResult),
        Method("ping", _BOTH, RequestParams, EmptyResult),
        Method("tools/list", _C2S, PaginatedRequestParams, ListToolsResult, "tools"),
        Method("tools/call", _C2S, CallToolRequestParams, CallToolResult, "tools"),
        Method("prompts/list", _C2S, PaginatedRequestParams, ListPromptsResult, "prompts"),
        Method("prompts/get", _C2S, GetPromptRequestParams, GetPromptResult, "prompts"),
        Method("resources/list", _C2S, PaginatedRequestParams, ListResourcesResult, "resources"),
        Method("resources/templates/list", _C2S, PaginatedRequestParams, ListResourceTemplatesResult, "resources"),
        Method("resources/read", _C2S, ReadResourceRequestParams, ReadResourceResult, "resources"),
        Method("resources/subscribe", _C2S, SubscribeRequestParams, EmptyResult, "resources.subscribe"),
        Method("resources/unsubscribe", _C2S, UnsubscribeRequestParams, EmptyResult, "resources.subscribe"),
        Method("logging/setLevel", _C2S, SetLevelRequestParams, EmptyResult, "logging"),
        _COMPLETE,
        _SAMPLE,
        _ROOTS,
    ),
    notifications=_by_name(
        Method("notifications/initialized", _C2S, NotificationParams),
        Method("notifications/cancelled", _BOTH, CancelledNotificationParams),
        _PROGRESS,
        Method("notifications/message", _S2C, LoggingMessageNotificationParams, gate="logging"),
        Method("notifications/tools/list_changed", _S2C, NotificationParams, gate="tools.listChanged"),
        Method("notifications/prompts/list_changed", _S2C, NotificationParams, gate="prompts.listChanged"),
        Method("notifications/resources/list_changed", _S2C, NotificationParams, gate="resources.listChanged"),
        Method("notifications/resources/updated", _S2C, ResourceUpdatedNotificationParams, gate="resources.subscribe"),
        Method("notifications/roots/list_changed", _C2S, NotificationParams, gate="roots.listChanged"),
    ),
    inputs=_by_name(),
)

_2025_03_26 = replace(
    _2024_11_05,
    name="2025-03-26",
    requests=_changed(_2024_11_05.requests, [replace(_COMPLETE, gate="completions")]),
    batches=True,
)

_2025_06_18 = replace(
    _2025_03_26,
    name="2025-06-18",
    requests=_changed(_2025_03_26.requests, [_ELICIT_FORM]),
    batches=False,
)

_2025_11_25 = replace(
    _2025_06_18,
    name=NEWEST_LEGACY,
    requests=_changed(_2025_06_18.requests, [_ELICIT]),
    notifications=_changed(_2025_06_18.notifications, [_ELICITED]),
    url_required=URL_ELICITATION_REQUIRED,
    polling=True,
    sampling_tools=True,
)

_2026_07_28 = replace(
    _2025_11_25,
    name=MODERN,
    era=Era.MODERN,
    requests=_changed(
        _2025_11_25.requests,
        [
            Method("server/discover", _C2S, RequestParams, DiscoverResult),
            Method("subscriptions/listen", _C2S, SubscriptionsListenRequestParams, SubscriptionsListenResult),
        ],
        drops=[
            "initialize",
            "ping",
            "resources/subscribe",
            "resources/unsubscribe",
            "logging/setLevel",
            "elicitation/create",
            "sampling/createMessage",
            "roots/list",
        ],
    ),
    notifications=_changed(
        _2025_11_25.notifications,
        [
            replace(_PROGRESS, senders=_S2C),
            Method("notifications/subscriptions/acknowledged", _S2C, SubscriptionsAcknowledgedNotificationParams),
        ],
        drops=["notifications/initialized", "notifications/roots/list_changed", "notifications/elicitation/complete"],
    ),
    inputs=_by_name(_ELICIT, _SAMPLE, _ROOTS),
    missing_capability=MISSING_CAPABILITY,
    missing_capability_is_result=False,
    missing_resource=INVALID_PARAMS,
    url_required=None,
    hides_gated=False,
    mirrors=True,
    polling=False,
)

REVISIONS: Mapping[str, Revision] = MappingProxyType(
    {revision.name: revision for revision in (_2026_07_28, _2025_11_25, _2025_06_18, _2025_03_26, _2024_11_05)}
)
"""Every revision, newest first."""

MODERN_ONLY: frozenset[str] = frozenset(_2026_07_28.requests) - frozenset(_2025_11_25.requests)
"""The request methods that no handshake leads to."""

SUPPORTED: tuple[str, ...] = tuple(REVISIONS)
