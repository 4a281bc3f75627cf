"""One rich model for each params and result type: every optional member is set somewhere."""

from __future__ import annotations

from trio_mcp.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    BooleanSchema,
    CallToolRequestParams,
    CallToolResult,
    CancelledNotificationParams,
    ClientCapabilities,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    ContentBlock,
    CreateMessageRequestParams,
    CreateMessageResult,
    DiscoverResult,
    ElicitationCapability,
    ElicitationCompleteNotificationParams,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    EmbeddedResource,
    EmptyResult,
    EnumOption,
    GetPromptRequestParams,
    GetPromptResult,
    Icon,
    ImageContent,
    Implementation,
    InitializeRequestParams,
    InitializeResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListRootsResult,
    ListToolsResult,
    LoggingMessageNotificationParams,
    Model,
    ModelHint,
    ModelPreferences,
    NotificationParams,
    NumberSchema,
    PaginatedRequestParams,
    ProgressNotificationParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    PromptReference,
    PromptsCapability,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestedSchema,
    RequestParams,
    Resource,
    ResourceLink,
    ResourcesCapability,
    ResourceTemplate,
    ResourceTemplateReference,
    ResourceUpdatedNotificationParams,
    Root,
    RootsCapability,
    SamplingCapability,
    SamplingMessage,
    ServerCapabilities,
    SetLevelRequestParams,
    StringSchema,
    SubscribeRequestParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    TextContent,
    TextResourceContents,
    TitledSingleSelectEnumSchema,
    Tool,
    ToolAnnotations,
    ToolExecution,
    ToolResultContent,
    ToolsCapability,
    ToolUseContent,
    UnsubscribeRequestParams,
    UntitledSingleSelectEnumSchema,
)

META = {"example.org/trace": "1", "io.modelcontextprotocol/serverInfo": {"name": "a", "version": "1"}}
NOTIFICATION_META = {"io.modelcontextprotocol/subscriptionId": 7}
REQUEST_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "progressToken": "p",
}
ICONS = [Icon(src="https://example.org/i.png", mime_type="image/png", sizes=["any"], theme="dark")]
HINTS = Annotations(audience=["user"], priority=0.5, last_modified="2025-01-12T15:00:58Z")
WHO = Implementation(
    name="a", version="1", title="A", description="It.", icons=ICONS, website_url="https://example.org"
)

TEXT = TextContent(text="t", annotations=HINTS, meta={"a": 1})
IMAGE = ImageContent(data="aGk=", mime_type="image/png", annotations=HINTS, meta={"a": 1})
AUDIO = AudioContent(data="aGk=", mime_type="audio/wav", annotations=HINTS, meta={"a": 1})
LINK = ResourceLink(
    uri="file:///a",
    name="a",
    title="A",
    description="It.",
    mime_type="text/plain",
    size=1,
    icons=ICONS,
    annotations=HINTS,
)
PAGE = TextResourceContents(uri="file:///a", mime_type="text/plain", text="t", meta={"a": 1})
BLOB = BlobResourceContents(uri="file:///b", mime_type="image/png", blob="aGk=", meta={"a": 1})
BLOCKS: list[ContentBlock] = [
    TEXT,
    IMAGE,
    AUDIO,
    LINK,
    EmbeddedResource(resource=PAGE, annotations=HINTS, meta={"a": 1}),
    EmbeddedResource(resource=BLOB),
]

CLIENT = ClientCapabilities(
    experimental={"a": {"b": 1}},
    roots=RootsCapability(list_changed=True),
    sampling=SamplingCapability(tools={}, context={}),
    elicitation=ElicitationCapability(form={}, url={}),
    tasks={"list": {}},
    extensions={"example.org/a": {}},
)
SERVER = ServerCapabilities(
    experimental={"a": {"b": 1}},
    logging={},
    completions={},
    prompts=PromptsCapability(list_changed=True),
    resources=ResourcesCapability(subscribe=True, list_changed=True),
    tools=ToolsCapability(list_changed=True),
    tasks={"list": {}},
    extensions={"example.org/a": {}},
)
TOOLS = [
    Tool(
        name="a",
        title="A",
        description="It.",
        input_schema={"type": "object", "properties": {"x": True, "y": False, "z": {"type": "string"}}},
        output_schema={"type": "object", "properties": {"x": True}},
        annotations=ToolAnnotations(title="A", read_only_hint=True),
        icons=ICONS,
        execution=ToolExecution(task_support="optional"),
        meta={"a": 1},
    ),
    Tool(name="b", input_schema={"type": "object"}, output_schema={"type": "array"}),
]
FORM = RequestedSchema(
    properties={
        "text": StringSchema(title="T", min_length=1, max_length=9, format="email", default="a@b.c"),
        "number": NumberSchema(minimum=0, maximum=9, default=1),
        "yes": BooleanSchema(default=True),
        "one": UntitledSingleSelectEnumSchema(enum=["a", "b"], default="a"),
        "titled": TitledSingleSelectEnumSchema(one_of=[EnumOption(const="a", title="A")], default="a"),
    },
    required=["text"],
    schema_dialect="https://json-schema.org/draft/2020-12/schema",
)

PARAMS: list[Model] = [
    RequestParams(),
    PaginatedRequestParams(cursor="c"),
    InitializeRequestParams(protocol_version="2025-11-25", capabilities=CLIENT, client_info=WHO),
    CallToolRequestParams(
        name="a", arguments={"x": None}, input_responses={"k": {"action": "cancel"}}, request_state="s"
    ),
    GetPromptRequestParams(name="a", arguments={"x": "y"}, request_state="s"),
    ReadResourceRequestParams(uri="file:///a", request_state="s"),
    SubscribeRequestParams(uri="file:///a"),
    UnsubscribeRequestParams(uri="file:///a"),
    SetLevelRequestParams(level="info"),
    CompleteRequestParams(
        ref=PromptReference(name="a", title="A"),
        argument=CompletionArgument(name="x", value="y"),
        context=CompletionContext(arguments={"z": "w"}),
    ),
    CompleteRequestParams(
        ref=ResourceTemplateReference(uri="file:///{a}"), argument=CompletionArgument(name="a", value="")
    ),
    SubscriptionsListenRequestParams(
        notifications=SubscriptionFilter(tools_list_changed=True, resource_subscriptions=["file:///a"])
    ),
    CreateMessageRequestParams(
        messages=[
            SamplingMessage(role="user", content=TEXT, meta={"a": 1}),
            SamplingMessage(role="user", content=[IMAGE, AUDIO]),
            SamplingMessage(role="assistant", content=[ToolUseContent(id="1", name="a", input={"x": None})]),
            SamplingMessage(
                role="user", content=[ToolResultContent(tool_use_id="1", content=BLOCKS, structured_content=[1])]
            ),
        ],
        max_tokens=9,
        model_preferences=ModelPreferences(hints=[ModelHint(name="m")], cost_priority=0.5),
        system_prompt="s",
        include_context="none",
        temperature=0.5,
        stop_sequences=["."],
        metadata={"a": 1},
    ),
    ElicitRequestFormParams(mode="form", message="?", requested_schema=FORM),
    ElicitRequestURLParams(message="?", url="https://example.org/a", elicitation_id="e"),
]

NOTIFICATIONS: list[Model] = [
    NotificationParams(meta=NOTIFICATION_META),
    CancelledNotificationParams(request_id=1, reason="r"),
    ProgressNotificationParams(progress_token="p", progress=0.5, total=1, message="m"),
    LoggingMessageNotificationParams(level="info", logger="l", data=None),
    ResourceUpdatedNotificationParams(uri="file:///a", meta=NOTIFICATION_META),
    ElicitationCompleteNotificationParams(elicitation_id="e"),
    SubscriptionsAcknowledgedNotificationParams(notifications=SubscriptionFilter(), meta=NOTIFICATION_META),
]

RESULTS: list[Model] = [
    EmptyResult(meta=META),
    InitializeResult(protocol_version="2025-11-25", capabilities=SERVER, server_info=WHO, instructions="i"),
    DiscoverResult(supported_versions=["2026-07-28"], capabilities=SERVER, instructions="i"),
    ListToolsResult(tools=TOOLS, next_cursor="n", ttl_ms=5, cache_scope="public", meta=META),
    CallToolResult(content=BLOCKS, structured_content={"a": None}, is_error=False, meta=META),
    CallToolResult(content=BLOCKS, structured_content=[1]),
    CallToolResult(content=[TextContent(text="null")], structured_content=None),
    CallToolResult(content=[TextContent(text="t")], structured_content={"a": 1}),
    CallToolResult(content=[TextContent(text="t")], result_type="complete"),
    CallToolResult(content=[TextContent(text="t")], is_error=True),
    ListPromptsResult(
        prompts=[
            Prompt(
                name="a",
                title="A",
                description="It.",
                arguments=[PromptArgument(name="x", title="X", description="It.", required=True)],
                icons=ICONS,
                meta={"a": 1},
            )
        ]
    ),
    GetPromptResult(description="d", messages=[PromptMessage(role="user", content=block) for block in BLOCKS]),
    ListResourcesResult(
        resources=[
            Resource(
                uri="file:///a",
                name="a",
                title="A",
                description="It.",
                mime_type="text/plain",
                size=1,
                icons=ICONS,
                annotations=HINTS,
                meta={"a": 1},
            )
        ]
    ),
    ListResourceTemplatesResult(
        resource_templates=[
            ResourceTemplate(
                uri_template="file:///{a}",
                name="a",
                title="A",
                description="It.",
                mime_type="text/plain",
                icons=ICONS,
                annotations=HINTS,
                meta={"a": 1},
            )
        ]
    ),
    ReadResourceResult(contents=[PAGE, BLOB], ttl_ms=5, meta=META),
    CompleteResult(completion=Completion(values=["a"], total=1, has_more=False)),
    SubscriptionsListenResult(meta=NOTIFICATION_META),
    CreateMessageResult(role="assistant", content=TEXT, model="m", stop_reason="endTurn"),
    CreateMessageResult(role="assistant", content=[TEXT, AUDIO], model="m"),
    CreateMessageResult(role="assistant", content=[ToolUseContent(id="1", name="a", input={})], model="m"),
    ElicitResult(action="accept", content={"a": "x", "b": 1, "c": True}),
    ListRootsResult(roots=[Root(uri="file:///a", name="A", meta={"a": 1})]),
]
