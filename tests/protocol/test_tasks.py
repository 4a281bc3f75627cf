"""How each revision reads and writes tasks: one record, and a face of it for each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from naming import unnamed
from samples import FOREVER, TASK
from spec_schemas import extension_validator, validator

from trio_mcp.errors import CapabilityError, LocalProtocolError, RemoteProtocolError
from trio_mcp.protocol.codec import Codec, codec_for
from trio_mcp.protocol.codec.tasks import TaskState
from trio_mcp.protocol.connection import Connection, ReplyIn
from trio_mcp.protocol.jsonrpc import Encoded, ErrorDetail, Response
from trio_mcp.protocol.revisions import (
    CLIENT_CAPABILITIES,
    IMMEDIATE_RESPONSE,
    MODERN,
    NEWEST_LEGACY,
    RELATED_TASK,
    REVISIONS,
    SERVER_INFO,
    SUPPORTED,
    TASKS_EXTENSION,
    TASKS_GATE,
    Side,
    TaskStyle,
    with_tasks,
)
from trio_mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    CancelTaskResult,
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateTaskResult,
    ElicitRequestFormParams,
    ElicitResult,
    GetTaskPayloadResult,
    GetTaskResult,
    InputRequiredResult,
    JsonObject,
    ListTasksResult,
    Model,
    RequestedSchema,
    RequestParams,
    SamplingMessage,
    ServerCapabilities,
    StringSchema,
    SubscriptionFilter,
    SubscriptionsListenRequestParams,
    TaskError,
    TaskMetadata,
    TaskRequestParams,
    TaskStatusNotificationParams,
    TextContent,
    ToolsCapability,
    UpdateTaskRequestParams,
    declares,
)

modern = codec_for(MODERN)
legacy = codec_for(NEWEST_LEGACY)

QUESTION = ElicitRequestFormParams(message="?", requested_schema=RequestedSchema(properties={"a": StringSchema()}))
SAMPLE = CreateMessageRequestParams(
    messages=[SamplingMessage(role="user", content=TextContent(text="?"))], max_tokens=1
)
DONE = CallToolResult(content=[TextContent(text="done")])
BROKEN = CallToolResult(content=[TextContent(text="no")], is_error=True)
ERROR = ErrorDetail(-32603, "It broke.", {"a": 1})
ASKED: dict[str, tuple[str, Model]] = {"k": ("elicitation/create", QUESTION)}

EXTENDED = ClientCapabilities(extensions={TASKS_EXTENSION: {}})
NOTHING = ClientCapabilities()

FLAT: JsonObject = TASK.wire()
OLD: JsonObject = {name: value for name, value in FLAT.items() if name not in ("ttlMs", "pollIntervalMs")} | {
    "ttl": 60_000,
    "pollInterval": 500,
}
WITHOUT_TASKS = tuple(name for name, revision in REVISIONS.items() if revision.tasks is TaskStyle.NONE)


def state(outcome: Model | ErrorDetail | None = None, asked: dict[str, tuple[str, Model]] | None = None) -> TaskState:
    return TaskState(TASK, outcome=outcome, asked=asked or {})


def shown(encoded: Encoded) -> JsonObject:
    return json.loads(encoded.raw)


# Which revision has which


def test_older_revisions_have_no_tasks():
    assert [revision.tasks for revision in REVISIONS.values()] == [
        TaskStyle.DECLARED,
        TaskStyle.REQUESTED,
        *(TaskStyle.NONE for _ in WITHOUT_TASKS),
    ]
    for version in WITHOUT_TASKS:
        revision = REVISIONS[version]
        assert not [name for name in (*revision.requests, *revision.notifications) if "tasks" in name]
        assert not any(method.as_task for method in revision.requests.values())


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
def test_the_extension_has_no_result_method_and_no_list(method: str):
    with pytest.raises(RemoteProtocolError) as raised:
        modern.decode_request(method, {"taskId": "t"}, sender=Side.CLIENT)
    assert raised.value.code == -32601


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"])
def test_both_sides_run_tasks_in_2025_11_25_and_only_the_server_in_the_extension(method: str):
    assert legacy.revision.requests[method].senders == (Side.CLIENT, Side.SERVER)
    with pytest.raises(RemoteProtocolError) as raised:
        modern.decode_request(method, {"taskId": "t"}, sender=Side.SERVER)
    assert raised.value.code == -32601


# Declaring


@pytest.mark.parametrize(
    ("gate", "tasks"),
    [("tasks", {}), ("tasks.list", {"list": {}}), ("tasks.requests.tools.call", {"requests": {"tools": {"call": {}}}})],
)
def test_a_capability_is_declared_by_an_object_at_its_end(gate: str, tasks: JsonObject):
    assert declares(ServerCapabilities(tasks=tasks), gate)


@pytest.mark.parametrize(
    "tasks", [{}, {"requests": 1}, {"requests": {"tools": {}}}, {"requests": {"tools": {"call": None}}}]
)
def test_an_object_that_is_missing_on_the_way_declares_nothing(tasks: JsonObject):
    assert not declares(ServerCapabilities(tasks=tasks), "tasks.requests.tools.call")


def test_a_server_declares_tasks_in_both_ways_and_each_revision_writes_its_own():
    offered = with_tasks(ServerCapabilities(tools=ToolsCapability()), ["tools/call"])
    written = {version: shown(codec_for(version).encode(offered, ServerCapabilities, "it")) for version in SUPPORTED}
    assert written[MODERN] == {"tools": {}, "extensions": {TASKS_EXTENSION: {}}}
    # A host looks for exactly `tasks.requests.tools.call`.
    assert written[NEWEST_LEGACY] == {
        "tools": {},
        "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
    }
    assert [written[version] for version in WITHOUT_TASKS] == [{"tools": {}}] * len(WITHOUT_TASKS)


def test_a_server_that_cannot_tell_its_callers_apart_declares_no_list():
    offered = with_tasks(ServerCapabilities(), ["tools/call"], listed=False)
    assert not declares(offered, "tasks.list")
    assert declares(offered, "tasks.cancel")


def test_a_client_may_take_tasks_and_run_none_or_run_some():
    assert with_tasks(NOTHING, []) == EXTENDED
    runs = with_tasks(NOTHING, ["sampling/createMessage", "elicitation/create"])
    assert declares(runs, "tasks.requests.elicitation.create")
    assert declares(runs, "tasks.requests.sampling.createMessage")
    assert not declares(runs, "tasks.requests.tools.call")


# Asking for a task

WANTED: JsonObject = {"name": "a", "task": {"ttl": 5}}


def test_a_call_asks_to_be_a_task_in_2025_11_25():
    params = legacy.decode_request("tools/call", WANTED, sender=Side.CLIENT)
    assert isinstance(params, CallToolRequestParams)
    assert params.task == TaskMetadata(ttl=5)
    assert legacy.asks_for_task("tools/call", params, NOTHING)
    assert not legacy.asks_for_task("tools/call", CallToolRequestParams(name="a"), EXTENDED)


@pytest.mark.parametrize("version", [MODERN, *WITHOUT_TASKS])
@pytest.mark.parametrize("task", [{"ttl": 5}, {"ttl": "soon"}, 1])
def test_elsewhere_the_member_means_nothing_when_read(version: str, task: object):
    params = codec_for(version).decode_request("tools/call", {"name": "a", "task": task}, sender=Side.CLIENT)  # type: ignore[dict-item]
    assert params == CallToolRequestParams(name="a")


@pytest.mark.parametrize("version", [MODERN, *WITHOUT_TASKS])
def test_and_it_is_not_written(version: str):
    params = CallToolRequestParams(name="a", task=TaskMetadata(ttl=5))
    assert shown(codec_for(version).encode_request("tools/call", params)) == {"name": "a"}
    assert shown(legacy.encode_request("tools/call", params)) == WANTED


@pytest.mark.parametrize(("method", "params"), [("elicitation/create", QUESTION), ("sampling/createMessage", SAMPLE)])
def test_a_question_asks_to_be_a_task_in_2025_11_25_and_never_in_a_round(method: str, params: Model):
    wanted = params.model_copy(update={"task": TaskMetadata()})
    assert shown(legacy.encode_request(method, wanted))["task"] == {}
    assert legacy.decode_request(method, wanted.wire(), sender=Side.SERVER) == wanted
    older = codec_for("2025-06-18")
    assert "task" not in shown(older.encode_request(method, wanted))
    assert older.decode_request(method, wanted.wire(), sender=Side.SERVER) == params
    round = shown(modern.encode_round("tools/call", {"k": (method, wanted)}, "s"))
    assert "task" not in str(round)
    read = modern.decode_result(
        "tools/call",
        {"resultType": "input_required", "inputRequests": {"k": {"method": method, "params": wanted.wire()}}},
    )
    assert isinstance(read, InputRequiredResult)
    assert read.input_requests
    assert getattr(read.input_requests["k"].params, "task", None) is None


def test_the_extension_makes_a_task_of_a_call_whose_client_declares_it_and_of_nothing_else():
    call = CallToolRequestParams(name="a")
    assert modern.asks_for_task("tools/call", call, EXTENDED)
    assert not modern.asks_for_task("tools/call", call, NOTHING)
    assert not modern.asks_for_task("resources/read", RequestParams(), EXTENDED)
    for version in WITHOUT_TASKS:
        assert not codec_for(version).asks_for_task("tools/call", call, EXTENDED)


# The answer that a task was created


def test_a_created_task_is_flat_in_the_extension_and_nested_in_2025_11_25(spec_dir: Path):
    identity = Encoded(b'{"name":"x","version":"1"}')
    flat = shown(modern.encode_created_task(state(), identity))
    assert flat == {"resultType": "task", **FLAT, "_meta": {SERVER_INFO: {"name": "x", "version": "1"}}}
    extension_validator(spec_dir, "CreateTaskResult").validate(flat)
    nested = shown(legacy.encode_created_task(state(), meta={IMMEDIATE_RESPONSE: "Soon."}))
    assert nested == {"task": OLD, "_meta": {IMMEDIATE_RESPONSE: "Soon."}}
    validator(spec_dir, NEWEST_LEGACY, "CreateTaskResult").validate(nested)


def test_a_task_without_an_expiry_has_a_null_ttl():
    assert shown(modern.encode_created_task(TaskState(FOREVER)))["ttlMs"] is None
    assert shown(legacy.encode_created_task(TaskState(FOREVER)))["task"]["ttl"] is None


@pytest.mark.parametrize("codec", [modern, legacy], ids=repr)
def test_a_created_task_is_read_as_it_was_written(codec: Codec):
    for task in (TASK, FOREVER):
        written = shown(codec.encode_created_task(TaskState(task)))
        read = codec.decode_result("tools/call", written)
        assert isinstance(read, CreateTaskResult)
        assert {name: getattr(read, name) for name in type(TASK).model_fields} == dict(task)


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create"])
def test_a_question_may_be_answered_with_a_task_in_2025_11_25(method: str):
    assert isinstance(legacy.decode_result(method, {"task": OLD}), CreateTaskResult)


@pytest.mark.parametrize("method", ["tools/list", "prompts/get", "resources/read", "tasks/cancel", "server/discover"])
def test_a_task_is_no_answer_to_another_method_of_the_extension(method: str):
    with pytest.raises(RemoteProtocolError, match=r"^result\.resultType"):
        modern.decode_result(method, {"resultType": "task", **FLAT})


def test_a_result_with_content_is_no_created_task():
    assert isinstance(legacy.decode_result("tools/call", {"task": OLD, "content": []}), CallToolResult)


@pytest.mark.parametrize("version", WITHOUT_TASKS)
def test_a_created_task_is_no_answer_in_an_older_revision(version: str):
    with pytest.raises(RemoteProtocolError, match=r"^result\.content"):
        codec_for(version).decode_result("tools/call", {"task": OLD})
    with pytest.raises(LocalProtocolError):
        codec_for(version).encode_created_task(state())


DECLARING: JsonObject = {CLIENT_CAPABILITIES: {"extensions": {TASKS_EXTENSION: {}}}}


@pytest.mark.parametrize(
    ("version", "params", "is_taken"),
    [
        (MODERN, CallToolRequestParams(name="a", meta=DECLARING), True),
        (MODERN, CallToolRequestParams(name="a", meta={CLIENT_CAPABILITIES: {}}), False),
        (MODERN, CallToolRequestParams(name="a", task=TaskMetadata(), meta={CLIENT_CAPABILITIES: {}}), False),
        (NEWEST_LEGACY, CallToolRequestParams(name="a", task=TaskMetadata()), True),
        (NEWEST_LEGACY, CallToolRequestParams(name="a", meta=DECLARING), False),
    ],
)
def test_a_connection_takes_a_task_only_for_a_request_that_takes_one(
    version: str, params: CallToolRequestParams, is_taken: bool
):
    connection, codec = Connection(Side.SERVER), codec_for(version)
    request = connection.new_request("tools/call", params, codec)
    event = connection.receive(Response(request.id, shown(codec.encode_created_task(state()))))
    assert isinstance(event, ReplyIn)
    assert isinstance(event.result, CreateTaskResult if is_taken else RemoteProtocolError)


# The state of a task


def reason(status: str, reported: TaskState) -> JsonObject:
    """The message of a failed task, in place of what its work said."""
    why = reported.outcome.message if isinstance(reported.outcome, ErrorDetail) else "no"
    return {"statusMessage": why} if status == "failed" else {}


@pytest.mark.parametrize(
    ("reported", "old", "new", "details"),
    [
        (state(), "working", "working", {}),
        (
            state(asked=ASKED),
            "input_required",
            "input_required",
            {"inputRequests": {"k": {"method": "elicitation/create", "params": QUESTION.wire()}}},
        ),
        (state(DONE), "completed", "completed", {"result": {"resultType": "complete", **DONE.wire()}}),
        # The revisions differ in what an error result of a tool is.
        (state(BROKEN), "failed", "completed", {"result": {"resultType": "complete", **BROKEN.wire()}}),
        (
            state(ERROR),
            "failed",
            "failed",
            {"error": {"code": ERROR.code, "message": ERROR.message, "data": ERROR.data}},
        ),
        (TaskState(TASK.model_copy(update={"status": "cancelled"}), outcome=DONE), "cancelled", "cancelled", {}),
    ],
)
def test_each_face_shows_its_own_status_and_the_extension_the_details(
    spec_dir: Path, reported: TaskState, old: str, new: str, details: JsonObject
):
    flat = shown(modern.encode_task(reported))
    assert flat == {"resultType": "complete", **FLAT, **reason(new, reported), "status": new, **details}
    extension_validator(spec_dir, "GetTaskResult").validate(flat)
    bare = shown(legacy.encode_task(reported))
    assert bare == {**OLD, **reason(old, reported), "status": old}
    validator(spec_dir, NEWEST_LEGACY, "GetTaskResult").validate(bare)
    assert (modern.shown_task(reported).status, legacy.shown_task(reported).status) == (new, old)


@pytest.mark.parametrize("reported", [state(), state(asked=ASKED), state(DONE), state(ERROR)])
def test_a_notification_says_what_a_poll_would(spec_dir: Path, reported: TaskState):
    for codec, name, check in (
        (modern, "notifications/tasks", extension_validator(spec_dir, "TaskStatusNotification")),
        (legacy, "notifications/tasks/status", validator(spec_dir, NEWEST_LEGACY, "TaskStatusNotification")),
    ):
        method, params = codec.encode_task_notification(reported, {"a": 1})
        assert method == name
        check.validate({"jsonrpc": "2.0", "method": method, "params": shown(params)})
        polled = shown(codec.encode_task(reported))
        polled.pop("resultType", None)
        assert shown(params) == {**polled, "_meta": {"a": 1}}


@pytest.mark.parametrize("version", WITHOUT_TASKS)
def test_an_older_revision_has_no_way_to_write_a_task(version: str):
    codec = codec_for(version)
    for write in (codec.encode_task, codec.encode_cancelled_task, codec.encode_task_notification):
        with pytest.raises(LocalProtocolError):
            write(state())


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_task_that_has_ended_is_not_shown_without_its_outcome_where_that_stands_in_it(status: str):
    ended = TaskState(TASK.model_copy(update={"status": status}))
    assert shown(legacy.encode_task(ended))["status"] == status
    with pytest.raises(LocalProtocolError, match=TASK.task_id):
        modern.encode_task(ended)


def test_the_details_of_a_task_are_read():
    read = modern.decode_result("tasks/get", shown(modern.encode_task(state(asked=ASKED))))
    assert isinstance(read, GetTaskResult)
    assert read.input_requests
    assert read.input_requests["k"].params == QUESTION
    read = modern.decode_result("tasks/get", shown(modern.encode_task(state(ERROR))))
    assert isinstance(read, GetTaskResult)
    assert read.error == TaskError(code=ERROR.code, message=ERROR.message, data=ERROR.data)
    news = modern.decode_notification("notifications/tasks", {**FLAT, "status": "working"}, sender=Side.SERVER)
    assert isinstance(news, TaskStatusNotificationParams)
    assert news.poll_interval_ms == 500


@pytest.mark.parametrize("type_", ["complete", "task", None])
def test_a_poll_may_be_answered_as_the_examples_of_the_extension_have_it(type_: str | None):
    wire = FLAT if type_ is None else {**FLAT, "resultType": type_}
    read = modern.decode_result("tasks/get", wire)
    assert isinstance(read, GetTaskResult)
    assert (read.status, read.ttl_ms, read.result_type) == ("working", 60_000, "complete")


def test_the_old_names_are_read_in_2025_11_25_and_the_new_ones_mean_nothing_there():
    wire: JsonObject = {**OLD, "ttlMs": 1, "pollIntervalMs": 1, "result": {}, "error": 5}
    read = legacy.decode_result("tasks/get", wire)
    assert isinstance(read, GetTaskResult)
    assert (read.ttl_ms, read.poll_interval_ms, read.result, read.error) == (60_000, 500, None, None)
    listed = legacy.decode_result("tasks/list", {"tasks": [wire], "nextCursor": "n"})
    assert isinstance(listed, ListTasksResult)
    assert listed.tasks[0].ttl_ms == 60_000
    news = legacy.decode_notification("notifications/tasks/status", wire, sender=Side.CLIENT)
    assert isinstance(news, TaskStatusNotificationParams)
    assert news.ttl_ms == 60_000


@pytest.mark.parametrize(
    ("method", "wire", "path"),
    [
        ("tools/call", {"task": {**OLD, "ttl": "x"}}, "result.task.ttl:"),
        ("tools/call", {"task": {name: value for name, value in OLD.items() if name != "ttl"}}, "result.task.ttl:"),
        ("tools/call", {"task": OLD, "_meta": 1}, "result._meta:"),
        ("tasks/get", {**OLD, "pollInterval": 1.5}, "result.pollInterval:"),
        ("tasks/get", {**OLD, "status": "lost"}, "result.status:"),
        ("tasks/list", {"tasks": [OLD, {**OLD, "ttl": "x"}]}, "result.tasks[1].ttl:"),
        ("tasks/list", {"tasks": 1}, "result.tasks:"),
        ("tasks/cancel", {**OLD, "ttl": "x"}, "result.ttl:"),
    ],
)
def test_what_is_wrong_is_named_as_the_peer_wrote_it(method: str, wire: JsonObject, path: str):
    with pytest.raises(RemoteProtocolError) as raised:
        legacy.decode_result(method, wire)
    assert unnamed(str(raised.value), path) == []


# Cancelling


def test_a_cancel_is_answered_with_the_task_in_2025_11_25_and_acknowledged_by_the_extension(spec_dir: Path):
    reported = TaskState(FOREVER)
    answered = shown(legacy.encode_cancelled_task(reported))
    validator(spec_dir, NEWEST_LEGACY, "CancelTaskResult").validate(answered)
    assert legacy.decode_result("tasks/cancel", answered) == CancelTaskResult(task=FOREVER, meta=None)
    acknowledged = shown(modern.encode_cancelled_task(reported))
    assert acknowledged == {"resultType": "complete"}
    assert modern.decode_result("tasks/cancel", acknowledged) == CancelTaskResult(result_type="complete")
    with pytest.raises(LocalProtocolError, match="task"):
        legacy.encode_result("tasks/cancel", CancelTaskResult())


# The result of a task


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("tools/call", DONE),
        ("tools/call", CallToolResult(content=[], structured_content=None)),
        ("sampling/createMessage", CreateMessageResult(role="assistant", content=TextContent(text="a"), model="m")),
        ("elicitation/create", ElicitResult(action="decline", meta={"a": 1})),
    ],
)
def test_the_result_method_gives_the_result_of_the_request_and_names_the_task(method: str, result: Model):
    written = shown(legacy.encode_task_payload(method, result, "t"))
    assert written["_meta"][RELATED_TASK] == {"taskId": "t"}
    read = legacy.decode_result("tasks/result", written)
    assert isinstance(read, GetTaskPayloadResult)
    payload = legacy.decode_task_payload(method, read.payload)
    assert type(payload) is type(result)
    plain = shown(legacy.encode_result(method, result))
    assert {**shown(legacy.encode_result(method, payload)), "_meta": None} == {
        **{name: value for name, value in plain.items() if value is not None},
        "_meta": None,
    }


def test_a_result_in_a_task_of_the_extension_is_read_by_the_method_of_its_request_and_names_no_task():
    read = modern.decode_result("tasks/get", shown(modern.encode_task(state(BROKEN))))
    assert isinstance(read, GetTaskResult)
    assert read.result
    assert RELATED_TASK not in str(read.result)
    payload = modern.decode_task_payload("tools/call", read.result)
    assert isinstance(payload, CallToolResult)
    assert payload.is_error
    assert isinstance(modern.decode_task_payload("tools/call", {"content": []}), CallToolResult)


@pytest.mark.parametrize(
    "payload",
    [{"resultType": "task", **FLAT}, {"resultType": "input_required", "requestState": "s"}, {"content": 1}, {}],
)
def test_the_result_of_a_task_is_a_complete_one(payload: JsonObject):
    with pytest.raises(RemoteProtocolError, match=r"^result\."):
        modern.decode_task_payload("tools/call", payload)


def test_a_task_in_the_result_of_a_task_is_refused_too():
    with pytest.raises(RemoteProtocolError, match=r"^result\.content"):
        legacy.decode_task_payload("tools/call", {"task": OLD})


@pytest.mark.parametrize("version", [MODERN, *WITHOUT_TASKS])
def test_no_other_revision_has_the_result_method(version: str):
    with pytest.raises(LocalProtocolError) as raised:
        codec_for(version).encode_task_payload("tools/call", DONE, "t")
    assert raised.value.code == -32601


def test_messages_about_a_task_name_it_in_2025_11_25_alone():
    assert legacy.related_meta("t", {"a": 1}) == {"a": 1, RELATED_TASK: {"taskId": "t"}}
    assert legacy.related_meta("t") == {RELATED_TASK: {"taskId": "t"}}
    assert modern.related_meta("t", {"a": 1}) == {"a": 1}
    assert modern.related_meta("t") is None


# Callers that do not declare the extension

LISTEN = SubscriptionsListenRequestParams(notifications=SubscriptionFilter(task_ids=["t"]))
NEEDED: JsonObject = {"extensions": {TASKS_EXTENSION: {}}}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tasks/get", TaskRequestParams(task_id="t")),
        ("tasks/update", UpdateTaskRequestParams(task_id="t", input_responses={})),
        ("tasks/cancel", TaskRequestParams(task_id="t")),
        ("subscriptions/listen", LISTEN),
    ],
)
def test_what_needs_the_extension_is_refused_to_a_caller_that_does_not_declare_it(method: str, params: Model):
    modern.check_declared(method, params, EXTENDED)
    with pytest.raises(CapabilityError) as raised:
        modern.check_declared(method, params, ClientCapabilities(extensions={"example.org/a": {}}))
    assert raised.value.required == NEEDED
    assert unnamed(str(raised.value), method, TASKS_GATE) == []


@pytest.mark.parametrize(
    ("codec", "method", "params"),
    [
        (modern, "tools/call", CallToolRequestParams(name="a")),
        (modern, "subscriptions/listen", SubscriptionsListenRequestParams(notifications=SubscriptionFilter())),
        (legacy, "tasks/get", TaskRequestParams(task_id="t")),
    ],
    ids=repr,
)
def test_what_does_not_need_it_is_let_through(codec: Codec, method: str, params: Model):
    codec.check_declared(method, params, NOTHING)


def test_the_tasks_of_a_subscription_are_read_and_written():
    wire: JsonObject = {"notifications": {"taskIds": ["t"]}}
    assert modern.decode_request("subscriptions/listen", wire, sender=Side.CLIENT) == LISTEN
    assert shown(modern.encode_request("subscriptions/listen", LISTEN)) == wire
