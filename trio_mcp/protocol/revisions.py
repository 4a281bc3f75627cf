"""The revisions of MCP as data: the methods of each one, with their direction, their types and their capability.

A revision is written as its difference from the one before, so that this file reads like the specification's change
logs. `tests/test_eras.py` lists the modules that may ask for the revision. The wire shapes
themselves barely differ; what an older revision lacks inside a shape is in `codec/downlevel.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Final, TypeVar, cast

from .. import types
from ..base.named_tuples import NamedTuple
from ..errors import RemoteProtocolError
from ..types import ClientCapabilities, JsonObject, Model, ServerCapabilities
from .jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    MISSING_CAPABILITY,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    URL_ELICITATION_REQUIRED,
)

# The reserved keys of `_meta`, and the names of extensions.

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
"""In what belongs to a task of 2025-11-25: its id, as `RelatedTaskMetadata` (L-TSK-7)."""
IMMEDIATE_RESPONSE: Final = "io.modelcontextprotocol/model-immediate-response"
"""In the answer that a task was created (2025-11-25): a text for the model until the result is there."""
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The name of the extension, among the `extensions` that either side declares."""
REQUIRED_CAPABILITIES: Final = "trio-mcp/requiredCapabilities"
"""In an error result of ours: the capabilities that the client would have to declare, as it would declare them."""
ELICIT: Final = "trio-mcp/elicit"
"""In a declared form: an object with the name of the `tool`, prompt or resource that asks, and the `key` of the question; and
its `context`, if it has one."""
ELICITS: Final = "trio-mcp/elicits"
"""In a tool, prompt or resource: the schemas of the questions that it may ask, by key."""
REQUIRED_SCOPES: Final = "trio-mcp/requiredScopes"
"""In an error result of ours: the scopes that the caller would have to have."""
IDEMPOTENCY_KEY: Final = "io.trio-mcp/idempotencyKey"
"""In a `tools/call`: names the call, so that a repeat of the request joins it or gets its outcome."""
KEYED_METHOD: Final = "tools/call"
"""The requests that may have such a key. The others read, and are simply sent again."""
REPEAT_OF: Final = "io.trio-mcp/repeatOf"
"""In a repeat of such a request: the `instance` of the server that the first was meant for."""
IDEMPOTENCY: Final = "io.trio-mcp/idempotency"
"""An experimental capability of a server: it knows both. Its member `instance` names the memory in which it keeps the keys."""
OUTCOME_UNKNOWN: Final = "io.trio-mcp/outcomeUnknown"
"""True in the `data` of an error: the call may or may not have run, and the server does not run it again."""
PROGRESS_TOKEN: Final = "progressToken"  # noqa: S105  a member name, no secret

RESERVED: frozenset[str] = frozenset(
    {PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, SERVER_INFO, SUBSCRIPTION_ID}
)
"""The keys that only the modern era has: never sent to a legacy peer."""


TASKS_GATE: Final = f"extensions.{TASKS_EXTENSION}"
"""What declares the tasks extension, as `types.declares` takes it."""

TASK_GATES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tools/call": "tasks.requests.tools.call",
        "sampling/createMessage": "tasks.requests.sampling.createMessage",
        "elicitation/create": "tasks.requests.elicitation.create",
    }
)
"""What declares, in 2025-11-25, that requests of a method may become tasks; no other method has such a capability (L-TSK-1)."""

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


class TaskStyle(Enum):
    """How a request becomes a task: never (NONE); its sender asks for it, and either side may (REQUESTED, 2025-11-25); the
    server decides for a client that declares the extension (DECLARED)."""

    NONE = "none"
    REQUESTED = "requested"
    DECLARED = "declared"


class MethodFields(NamedTuple):
    """A request or a notification of one revision.

    Attributes:
        senders: the sides that may send it.
        params_name, result_name: its types in `trio_mcp.types`, by name, so that only those are loaded that are used; no result
            for notifications.
        gate: the capability that must be declared, as `types.declares` takes it, or None. Its first word says whose it
            is: `elicitation`, `roots` and `sampling` are the client's, `tasks` that of the side that runs the task, all others
            the server's.
        needs: the capability that the client must declare in the request itself, or None.
        as_task: the capability with which a request may become a task: of the side that receives it (REQUESTED) or sends it
            (DECLARED); None if it never does.
        mode_names: other types of params, by the value of the `mode` member that selects them.
        asks: it may be answered with questions (M-MRTR-1s): its params are `InputResponseRequestParams`.
    """

    name: str
    senders: tuple[Side, ...]
    params_name: str
    result_name: str | None = None
    gate: str | None = None
    needs: str | None = None
    as_task: str | None = None
    mode_names: Mapping[str, str] = MappingProxyType({})
    asks: bool = False


class Method(MethodFields):
    """A request or a notification of one revision, and its types, which are loaded when they are first needed."""

    @cached_property
    def params(self) -> type[Model]:
        return _named(self.params_name)

    @cached_property
    def result(self) -> type[Model] | None:
        return None if self.result_name is None else _named(self.result_name)

    @cached_property
    def modes(self) -> Mapping[str, type[Model]]:
        return {mode: _named(name) for mode, name in self.mode_names.items()}


def _named(name: str) -> type[Model]:
    return cast("type[Model]", getattr(types, name))


class Revision(NamedTuple):
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
        tasks: how a request becomes a task.
        error_result_fails: a task that ends with an error result of its tool has failed (2025-11-25, L-TSK-5); since then it is
            completed, and only an error of the protocol fails it (M-TSK-4).
        ended_task_is_error: to cancel a task that is over is an error (L-TSK-8); since then it is acknowledged.
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
    tasks: TaskStyle = TaskStyle.NONE
    error_result_fails: bool = False
    ended_task_is_error: bool = False


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

_CALL_TOOL = Method("tools/call", _C2S, "CallToolRequestParams", "CallToolResult", "tools", asks=True)
_SAMPLE = Method("sampling/createMessage", _S2C, "CreateMessageRequestParams", "CreateMessageResult", "sampling")
_ROOTS = Method("roots/list", _S2C, "RequestParams", "ListRootsResult", "roots")
_COMPLETE = Method("completion/complete", _C2S, "CompleteRequestParams", "CompleteResult")
_ELICIT_FORM = Method("elicitation/create", _S2C, "ElicitRequestFormParams", "ElicitResult", "elicitation")
_ELICIT = _ELICIT_FORM._replace(mode_names={"url": "ElicitRequestURLParams"})
_ELICITED = Method(
    "notifications/elicitation/complete", _S2C, "ElicitationCompleteNotificationParams", gate="elicitation.url"
)
_PROGRESS = Method("notifications/progress", _BOTH, "ProgressNotificationParams")
_GET_TASK = Method("tasks/get", _BOTH, "TaskRequestParams", "GetTaskResult", "tasks")
_CANCEL_TASK = Method("tasks/cancel", _BOTH, "TaskRequestParams", "CancelTaskResult", "tasks.cancel")

_2024_11_05 = Revision(
    "2024-11-05",
    Era.LEGACY,
    requests=_by_name(
        Method("initialize", _C2S, "InitializeRequestParams", "InitializeResult"),
        Method("ping", _BOTH, "RequestParams", "EmptyResult"),
        Method("tools/list", _C2S, "PaginatedRequestParams", "ListToolsResult", "tools"),
        _CALL_TOOL,
        Method("prompts/list", _C2S, "PaginatedRequestParams", "ListPromptsResult", "prompts"),
        Method("prompts/get", _C2S, "GetPromptRequestParams", "GetPromptResult", "prompts", asks=True),
        Method("resources/list", _C2S, "PaginatedRequestParams", "ListResourcesResult", "resources"),
        Method("resources/templates/list", _C2S, "PaginatedRequestParams", "ListResourceTemplatesResult", "resources"),
        Method("resources/read", _C2S, "ReadResourceRequestParams", "ReadResourceResult", "resources", asks=True),
        Method("resources/subscribe", _C2S, "SubscribeRequestParams", "EmptyResult", "resources.subscribe"),
        Method("resources/unsubscribe", _C2S, "UnsubscribeRequestParams", "EmptyResult", "resources.subscribe"),
        Method("logging/setLevel", _C2S, "SetLevelRequestParams", "EmptyResult", "logging"),
        _COMPLETE,
        _SAMPLE,
        _ROOTS,
    ),
    notifications=_by_name(
        Method("notifications/initialized", _C2S, "NotificationParams"),
        Method("notifications/cancelled", _BOTH, "CancelledNotificationParams"),
        _PROGRESS,
        Method("notifications/message", _S2C, "LoggingMessageNotificationParams", gate="logging"),
        Method("notifications/tools/list_changed", _S2C, "NotificationParams", gate="tools.listChanged"),
        Method("notifications/prompts/list_changed", _S2C, "NotificationParams", gate="prompts.listChanged"),
        Method("notifications/resources/list_changed", _S2C, "NotificationParams", gate="resources.listChanged"),
        Method(
            "notifications/resources/updated", _S2C, "ResourceUpdatedNotificationParams", gate="resources.subscribe"
        ),
        Method("notifications/roots/list_changed", _C2S, "NotificationParams", gate="roots.listChanged"),
    ),
    inputs=_by_name(),
)

_2025_03_26 = _2024_11_05._replace(
    name="2025-03-26",
    requests=_changed(_2024_11_05.requests, [_COMPLETE._replace(gate="completions")]),
    batches=True,
)

_2025_06_18 = _2025_03_26._replace(
    name="2025-06-18",
    requests=_changed(_2025_03_26.requests, [_ELICIT_FORM]),
    batches=False,
)

_2025_11_25 = _2025_06_18._replace(
    name=NEWEST_LEGACY,
    requests=_changed(
        _2025_06_18.requests,
        [
            *(method._replace(as_task=TASK_GATES[method.name]) for method in (_CALL_TOOL, _SAMPLE, _ELICIT)),
            _GET_TASK,
            Method("tasks/result", _BOTH, "TaskRequestParams", "GetTaskPayloadResult", "tasks"),
            Method("tasks/list", _BOTH, "PaginatedRequestParams", "ListTasksResult", "tasks.list"),
            _CANCEL_TASK,
        ],
    ),
    notifications=_changed(
        _2025_06_18.notifications,
        [_ELICITED, Method("notifications/tasks/status", _BOTH, "TaskStatusNotificationParams", gate="tasks")],
    ),
    url_required=URL_ELICITATION_REQUIRED,
    polling=True,
    sampling_tools=True,
    tasks=TaskStyle.REQUESTED,
    error_result_fails=True,
    ended_task_is_error=True,
)

_2026_07_28 = _2025_11_25._replace(
    name=MODERN,
    era=Era.MODERN,
    requests=_changed(
        _2025_11_25.requests,
        [
            _CALL_TOOL._replace(as_task=TASKS_GATE),
            _GET_TASK._replace(senders=_C2S, gate=TASKS_GATE, needs=TASKS_GATE),
            Method("tasks/update", _C2S, "UpdateTaskRequestParams", "EmptyResult", TASKS_GATE, TASKS_GATE),
            _CANCEL_TASK._replace(senders=_C2S, gate=TASKS_GATE, needs=TASKS_GATE),
            Method("server/discover", _C2S, "RequestParams", "DiscoverResult"),
            Method("subscriptions/listen", _C2S, "SubscriptionsListenRequestParams", "SubscriptionsListenResult"),
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
            "tasks/result",
            "tasks/list",
        ],
    ),
    notifications=_changed(
        _2025_11_25.notifications,
        [
            _PROGRESS._replace(senders=_S2C),
            Method("notifications/subscriptions/acknowledged", _S2C, "SubscriptionsAcknowledgedNotificationParams"),
            Method("notifications/tasks", _S2C, "TaskStatusNotificationParams", gate=TASKS_GATE),
        ],
        drops=[
            "notifications/initialized",
            "notifications/roots/list_changed",
            "notifications/elicitation/complete",
            "notifications/tasks/status",
        ],
    ),
    inputs=_by_name(_ELICIT, _SAMPLE, _ROOTS),
    missing_capability=MISSING_CAPABILITY,
    missing_capability_is_result=False,
    missing_resource=INVALID_PARAMS,
    url_required=None,
    hides_gated=False,
    mirrors=True,
    polling=False,
    tasks=TaskStyle.DECLARED,
    error_result_fails=False,
    ended_task_is_error=False,
)

REVISIONS: Mapping[str, Revision] = MappingProxyType(
    {revision.name: revision for revision in (_2026_07_28, _2025_11_25, _2025_06_18, _2025_03_26, _2024_11_05)}
)
"""Every revision, newest first."""

MODERN_ONLY: frozenset[str] = frozenset(_2026_07_28.requests) - frozenset(_2025_11_25.requests)
"""The request methods that no handshake leads to."""

SUPPORTED: tuple[str, ...] = tuple(REVISIONS)


# What declares that a side runs tasks, in both ways of writing: each codec leaves out the one that its revision lacks.

C = TypeVar("C", ClientCapabilities, ServerCapabilities)


def with_tasks(capabilities: C, methods: Iterable[str], *, listed: bool = True) -> C:
    """Return capabilities that declare tasks too.

    Args:
        methods: the requests of the other side that may become tasks here, such as "tools/call"; a client with none of them
            declares only that it takes tasks as answers (the extension).
            The keys of `TASK_GATES`.
        listed: the server identifies its callers, so that each may list its own tasks (2025-11-25, L-TSK-8).
    """
    requests: JsonObject = {}
    for method in methods:
        group, name = TASK_GATES[method].split(".")[2:]
        requests[group] = {name: {}}
    # A host looks at whether `requests.tools.call` exists, so that each object is written, although it is empty.
    tasks: JsonObject = {**({"list": {}} if listed else {}), "cancel": {}, "requests": requests}
    extensions = {**(capabilities.extensions or {}), TASKS_EXTENSION: {}}
    return capabilities.model_copy(update={"tasks": tasks if requests else None, "extensions": extensions})
