"""One rich model for each params and result type: every optional member is set somewhere."""

from __future__ import annotations

from typing import Any

from trio_mcp import types

TASK = types.Task(
    task_id="t",
    status="working",
    status_message="Half way.",
    created_at="2025-11-25T10:30:00Z",
    last_updated_at="2025-11-25T10:40:00Z",
    ttl_ms=60_000,
    poll_interval_ms=500,
)
FOREVER = TASK.model_copy(update={"ttl_ms": None, "poll_interval_ms": None, "status": "cancelled"})

META = {"example.org/trace": "1", "io.modelcontextprotocol/serverInfo": {"name": "a", "version": "1"}}
NOTIFICATION_META = {"io.modelcontextprotocol/subscriptionId": 7}
REQUEST_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "progressToken": "p",
}
ICONS = [types.Icon(src="https://example.org/i.png", mime_type="image/png", sizes=["any"], theme="dark")]
HINTS = types.Annotations(audience=["user"], priority=0.5, last_modified="2025-01-12T15:00:58Z")
WHO = types.Implementation(
    name="a", version="1", title="A", description="It.", icons=ICONS, website_url="https://example.org"
)

TEXT = types.TextContent(text="t", annotations=HINTS, meta={"a": 1})
IMAGE = types.ImageContent(data="aGk=", mime_type="image/png", annotations=HINTS, meta={"a": 1})
AUDIO = types.AudioContent(data="aGk=", mime_type="audio/wav", annotations=HINTS, meta={"a": 1})
NAMED: Any = {"name": "a", "title": "A", "description": "It.", "icons": ICONS}
FILE: Any = {**NAMED, "mime_type": "text/plain", "annotations": HINTS}
LINK = types.ResourceLink(uri="file:///a", size=1, **FILE)
PAGE = types.TextResourceContents(uri="file:///a", mime_type="text/plain", text="t", meta={"a": 1})
BLOB = types.BlobResourceContents(uri="file:///b", mime_type="image/png", blob="aGk=", meta={"a": 1})
BLOCKS: list[types.ContentBlock] = [
    TEXT,
    IMAGE,
    AUDIO,
    LINK,
    types.EmbeddedResource(resource=PAGE, annotations=HINTS, meta={"a": 1}),
    types.EmbeddedResource(resource=BLOB),
]

CLIENT = types.ClientCapabilities(
    experimental={"a": {"b": 1}},
    roots=types.RootsCapability(list_changed=True),
    sampling=types.SamplingCapability(tools={}, context={}),
    elicitation=types.ElicitationCapability(form={}, url={}),
    tasks={"list": {}},
    extensions={"example.org/a": {}},
)
SERVER = types.ServerCapabilities(
    experimental={"a": {"b": 1}},
    logging={},
    completions={},
    prompts=types.PromptsCapability(list_changed=True),
    resources=types.ResourcesCapability(subscribe=True, list_changed=True),
    tools=types.ToolsCapability(list_changed=True),
    tasks={"list": {}},
    extensions={"example.org/a": {}},
)
TOOLS = [
    types.Tool(
        **NAMED,
        input_schema={"type": "object", "properties": {"x": True, "y": False, "z": {"type": "string"}}},
        output_schema={"type": "object", "properties": {"x": True}},
        annotations=types.ToolAnnotations(title="A", read_only_hint=True),
        execution=types.ToolExecution(task_support="optional"),
        meta={"a": 1},
    ),
    types.Tool(name="b", input_schema={"type": "object"}, output_schema={"type": "array"}),
]
FORM = types.RequestedSchema(
    properties={
        "text": types.StringSchema(title="T", min_length=1, max_length=9, format="email", default="a@b.c"),
        "number": types.NumberSchema(minimum=0, maximum=9, default=1),
        "yes": types.BooleanSchema(default=True),
        "one": types.UntitledSingleSelectEnumSchema(enum=["a", "b"], default="a"),
        "titled": types.TitledSingleSelectEnumSchema(one_of=[types.EnumOption(const="a", title="A")], default="a"),
    },
    required=["text"],
    schema_dialect="https://json-schema.org/draft/2020-12/schema",
)

PARAMS: list[types.Model] = [
    types.RequestParams(),
    types.PaginatedRequestParams(cursor="c"),
    types.InitializeRequestParams(protocol_version="2025-11-25", capabilities=CLIENT, client_info=WHO),
    types.CallToolRequestParams(
        name="a",
        arguments={"x": None},
        input_responses={"k": {"action": "cancel"}},
        request_state="s",
        task=types.TaskMetadata(ttl=5),
    ),
    types.GetPromptRequestParams(name="a", arguments={"x": "y"}, request_state="s"),
    types.ReadResourceRequestParams(uri="file:///a", request_state="s"),
    types.SubscribeRequestParams(uri="file:///a"),
    types.UnsubscribeRequestParams(uri="file:///a"),
    types.SetLevelRequestParams(level="info"),
    types.CompleteRequestParams(
        ref=types.PromptReference(name="a", title="A"),
        argument=types.CompletionArgument(name="x", value="y"),
        context=types.CompletionContext(arguments={"z": "w"}),
    ),
    types.CompleteRequestParams(
        ref=types.ResourceTemplateReference(uri="file:///{a}"), argument=types.CompletionArgument(name="a", value="")
    ),
    types.SubscriptionsListenRequestParams(
        notifications=types.SubscriptionFilter(tools_list_changed=True, resource_subscriptions=["file:///a"])
    ),
    types.CreateMessageRequestParams(
        messages=[
            types.SamplingMessage(role="user", content=TEXT, meta={"a": 1}),
            types.SamplingMessage(role="user", content=[IMAGE, AUDIO]),
            types.SamplingMessage(
                role="assistant", content=[types.ToolUseContent(id="1", name="a", input={"x": None})]
            ),
            types.SamplingMessage(
                role="user", content=[types.ToolResultContent(tool_use_id="1", content=BLOCKS, structured_content=[1])]
            ),
        ],
        max_tokens=9,
        model_preferences=types.ModelPreferences(hints=[types.ModelHint(name="m")], cost_priority=0.5),
        system_prompt="s",
        include_context="none",
        temperature=0.5,
        stop_sequences=["."],
        metadata={"a": 1},
        task=types.TaskMetadata(),
    ),
    types.ElicitRequestFormParams(mode="form", message="?", requested_schema=FORM, task=types.TaskMetadata(ttl=5)),
    types.ElicitRequestURLParams(
        message="?", url="https://example.org/a", elicitation_id="e", task=types.TaskMetadata(ttl=5)
    ),
    types.TaskRequestParams(task_id="t"),
    types.UpdateTaskRequestParams(task_id="t", input_responses={"k": {"action": "cancel"}}),
]

NOTIFICATIONS: list[types.Model] = [
    types.NotificationParams(meta=NOTIFICATION_META),
    types.CancelledNotificationParams(request_id=1, reason="r"),
    types.ProgressNotificationParams(progress_token="p", progress=0.5, total=1, message="m"),
    types.LoggingMessageNotificationParams(level="info", logger="l", data=None),
    types.ResourceUpdatedNotificationParams(uri="file:///a", meta=NOTIFICATION_META),
    types.ElicitationCompleteNotificationParams(elicitation_id="e"),
    types.TaskStatusNotificationParams(**dict(TASK)),
    types.SubscriptionsAcknowledgedNotificationParams(notifications=types.SubscriptionFilter(), meta=NOTIFICATION_META),
]

RESULTS: list[types.Model] = [
    types.EmptyResult(meta=META),
    types.InitializeResult(protocol_version="2025-11-25", capabilities=SERVER, server_info=WHO, instructions="i"),
    types.DiscoverResult(supported_versions=["2026-07-28"], capabilities=SERVER, instructions="i"),
    types.ListToolsResult(tools=TOOLS, next_cursor="n", ttl_ms=5, cache_scope="public", meta=META),
    types.CallToolResult(content=BLOCKS, structured_content={"a": None}, is_error=False, meta=META),
    types.CallToolResult(content=BLOCKS, structured_content=[1]),
    types.CallToolResult(content=[types.TextContent(text="null")], structured_content=None),
    types.CallToolResult(content=[types.TextContent(text="t")], structured_content={"a": 1}),
    types.CallToolResult(content=[types.TextContent(text="t")], result_type="complete"),
    types.CallToolResult(content=[types.TextContent(text="t")], is_error=True),
    types.ListPromptsResult(
        prompts=[
            types.Prompt(
                **NAMED,
                arguments=[types.PromptArgument(name="x", title="X", description="It.", required=True)],
                meta={"a": 1},
            )
        ]
    ),
    types.GetPromptResult(
        description="d", messages=[types.PromptMessage(role="user", content=block) for block in BLOCKS]
    ),
    types.ListResourcesResult(resources=[types.Resource(uri="file:///a", size=1, meta={"a": 1}, **FILE)]),
    types.ListResourceTemplatesResult(
        resource_templates=[types.ResourceTemplate(uri_template="file:///{a}", meta={"a": 1}, **FILE)]
    ),
    types.ReadResourceResult(contents=[PAGE, BLOB], ttl_ms=5, meta=META),
    types.CompleteResult(completion=types.Completion(values=["a"], total=1, has_more=False)),
    types.SubscriptionsListenResult(meta=NOTIFICATION_META),
    types.CreateMessageResult(role="assistant", content=TEXT, model="m", stop_reason="endTurn"),
    types.CreateMessageResult(role="assistant", content=[TEXT, AUDIO], model="m"),
    types.CreateMessageResult(role="assistant", content=[types.ToolUseContent(id="1", name="a", input={})], model="m"),
    types.ElicitResult(action="accept", content={"a": "x", "b": 1, "c": True}),
    types.GetTaskResult(**dict(TASK)),
    types.GetTaskResult(**dict(FOREVER)),
    types.GetTaskPayloadResult.model_validate({"content": [], "structuredContent": None}),
    types.ListTasksResult(tasks=[TASK, FOREVER], next_cursor="n"),
    types.CancelTaskResult(task=FOREVER),
    types.ListRootsResult(roots=[types.Root(uri="file:///a", name="A", meta={"a": 1})]),
]
