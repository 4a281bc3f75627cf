"""The models of MCP: those of the newest revision, 2026-07-28, and what only older revisions have."""

# One model serves every revision. A member that a revision does not have is removed or rewritten by its codec (`protocol.codec`),
# so that servers and clients know one set of classes. With a set of models for each revision, every tool that hands on a value
# would have to convert it.

from typing import TYPE_CHECKING

from .. import late

if TYPE_CHECKING:
    from .base import JsonObject, JsonValue, Model
    from .capabilities import (
        ClientCapabilities,
        ElicitationCapability,
        PromptsCapability,
        ResourcesCapability,
        RootsCapability,
        SamplingCapability,
        ServerCapabilities,
        ToolsCapability,
        declares,
    )
    from .completion import (
        CompleteRequestParams,
        CompleteResult,
        Completion,
        CompletionArgument,
        CompletionContext,
        PromptReference,
        Reference,
        ResourceTemplateReference,
    )
    from .content import (
        Annotations,
        AudioContent,
        BlobResourceContents,
        ContentBlock,
        EmbeddedResource,
        Icon,
        ImageContent,
        Resource,
        ResourceContents,
        ResourceLink,
        Role,
        SamplingContentBlock,
        TextContent,
        TextResourceContents,
        ToolResultContent,
        ToolUseContent,
    )
    from .elicitation import (
        BooleanSchema,
        ElicitationCompleteNotificationParams,
        ElicitRequest,
        ElicitRequestFormParams,
        ElicitRequestParams,
        ElicitRequestURLParams,
        ElicitResult,
        ElicitValue,
        EnumOption,
        LegacyTitledEnumSchema,
        NumberSchema,
        PrimitiveSchemaDefinition,
        RequestedSchema,
        StringSchema,
        TitledItems,
        TitledMultiSelectEnumSchema,
        TitledSingleSelectEnumSchema,
        UntitledItems,
        UntitledMultiSelectEnumSchema,
        UntitledSingleSelectEnumSchema,
    )
    from .implementation import Implementation
    from .lifecycle import (
        DiscoverResult,
        InitializeRequestParams,
        InitializeResult,
    )
    from .logging import LoggingMessageNotificationParams, SetLevelRequestParams
    from .logging_levels import LOGGING_LEVELS, LoggingLevel
    from .messages import (
        CacheableResult,
        CacheScope,
        Cursor,
        EmptyResult,
        InputResponseRequestParams,
        InputResponses,
        NotificationParams,
        PaginatedRequestParams,
        PaginatedResult,
        ProgressToken,
        RequestId,
        RequestParams,
        ResourceRequestParams,
        Result,
        TaskMetadata,
    )
    from .notifications import (
        CancelledNotificationParams,
        ProgressNotificationParams,
    )
    from .prompts import (
        GetPromptRequestParams,
        GetPromptResult,
        ListPromptsResult,
        Prompt,
        PromptArgument,
        PromptMessage,
    )
    from .resources import (
        ListResourcesResult,
        ListResourceTemplatesResult,
        ReadResourceRequestParams,
        ReadResourceResult,
        ResourceTemplate,
        ResourceUpdatedNotificationParams,
        SubscribeRequestParams,
        UnsubscribeRequestParams,
    )
    from .roots import ListRootsRequest, ListRootsResult, Root
    from .rounds import (
        InputRequest,
        InputRequests,
        InputRequiredResult,
        InputResponse,
    )
    from .sampling import (
        CreateMessageRequest,
        CreateMessageRequestParams,
        CreateMessageResult,
        ModelHint,
        ModelPreferences,
        SamplingMessage,
        SamplingMessageContent,
        ToolChoice,
    )
    from .subscriptions import (
        SubscriptionFilter,
        SubscriptionsAcknowledgedNotificationParams,
        SubscriptionsListenRequestParams,
        SubscriptionsListenResult,
    )
    from .tasks import (
        CancelTaskResult,
        CreateTaskResult,
        DetailedTask,
        GetTaskPayloadResult,
        GetTaskResult,
        ListTasksResult,
        RelatedTaskMetadata,
        Task,
        TaskError,
        TaskRequestParams,
        TaskStatus,
        TaskStatusNotificationParams,
        UpdateTaskRequestParams,
    )
    from .tools import (
        CallToolRequestParams,
        CallToolResult,
        ListToolsResult,
        Tool,
        ToolAnnotations,
        ToolExecution,
    )
else:
    __getattr__, __dir__ = late.exports(
        __name__,
        {
            "base": "JsonObject JsonValue Model",
            "capabilities": (
                "ClientCapabilities ElicitationCapability PromptsCapability ResourcesCapability RootsCapability "
                "SamplingCapability ServerCapabilities ToolsCapability declares"
            ),
            "completion": (
                "CompleteRequestParams CompleteResult Completion CompletionArgument CompletionContext "
                "PromptReference Reference ResourceTemplateReference"
            ),
            "content": (
                "Annotations AudioContent BlobResourceContents ContentBlock EmbeddedResource Icon ImageContent "
                "Resource ResourceContents ResourceLink Role SamplingContentBlock TextContent "
                "TextResourceContents ToolResultContent ToolUseContent"
            ),
            "elicitation": (
                "BooleanSchema ElicitationCompleteNotificationParams ElicitRequest ElicitRequestFormParams "
                "ElicitRequestParams ElicitRequestURLParams ElicitResult ElicitValue EnumOption "
                "LegacyTitledEnumSchema NumberSchema PrimitiveSchemaDefinition RequestedSchema StringSchema "
                "TitledItems TitledMultiSelectEnumSchema TitledSingleSelectEnumSchema UntitledItems "
                "UntitledMultiSelectEnumSchema UntitledSingleSelectEnumSchema"
            ),
            "implementation": "Implementation",
            "lifecycle": "DiscoverResult InitializeRequestParams InitializeResult",
            "logging": "LoggingMessageNotificationParams SetLevelRequestParams",
            "logging_levels": "LOGGING_LEVELS LoggingLevel",
            "messages": (
                "CacheableResult CacheScope Cursor EmptyResult InputResponseRequestParams InputResponses "
                "NotificationParams PaginatedRequestParams PaginatedResult ProgressToken RequestId RequestParams "
                "ResourceRequestParams Result TaskMetadata"
            ),
            "notifications": "CancelledNotificationParams ProgressNotificationParams",
            "prompts": "GetPromptRequestParams GetPromptResult ListPromptsResult Prompt PromptArgument PromptMessage",
            "resources": (
                "ListResourcesResult ListResourceTemplatesResult ReadResourceRequestParams ReadResourceResult "
                "ResourceTemplate ResourceUpdatedNotificationParams SubscribeRequestParams "
                "UnsubscribeRequestParams"
            ),
            "roots": "ListRootsRequest ListRootsResult Root",
            "rounds": "InputRequest InputRequests InputRequiredResult InputResponse",
            "sampling": (
                "CreateMessageRequest CreateMessageRequestParams CreateMessageResult ModelHint ModelPreferences "
                "SamplingMessage SamplingMessageContent ToolChoice"
            ),
            "subscriptions": (
                "SubscriptionFilter SubscriptionsAcknowledgedNotificationParams SubscriptionsListenRequestParams "
                "SubscriptionsListenResult"
            ),
            "tasks": (
                "CancelTaskResult CreateTaskResult DetailedTask GetTaskPayloadResult GetTaskResult "
                "ListTasksResult RelatedTaskMetadata Task TaskError TaskRequestParams TaskStatus "
                "TaskStatusNotificationParams UpdateTaskRequestParams"
            ),
            "tools": "CallToolRequestParams CallToolResult ListToolsResult Tool ToolAnnotations ToolExecution",
        },
    )

__all__ = [
    "LOGGING_LEVELS",
    "Annotations",
    "AudioContent",
    "BlobResourceContents",
    "BooleanSchema",
    "CacheScope",
    "CacheableResult",
    "CallToolRequestParams",
    "CallToolResult",
    "CancelTaskResult",
    "CancelledNotificationParams",
    "ClientCapabilities",
    "CompleteRequestParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "ContentBlock",
    "CreateMessageRequest",
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "CreateTaskResult",
    "Cursor",
    "DetailedTask",
    "DiscoverResult",
    "ElicitRequest",
    "ElicitRequestFormParams",
    "ElicitRequestParams",
    "ElicitRequestURLParams",
    "ElicitResult",
    "ElicitValue",
    "ElicitationCapability",
    "ElicitationCompleteNotificationParams",
    "EmbeddedResource",
    "EmptyResult",
    "EnumOption",
    "GetPromptRequestParams",
    "GetPromptResult",
    "GetTaskPayloadResult",
    "GetTaskResult",
    "Icon",
    "ImageContent",
    "Implementation",
    "InitializeRequestParams",
    "InitializeResult",
    "InputRequest",
    "InputRequests",
    "InputRequiredResult",
    "InputResponse",
    "InputResponseRequestParams",
    "InputResponses",
    "JsonObject",
    "JsonValue",
    "LegacyTitledEnumSchema",
    "ListPromptsResult",
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ListRootsRequest",
    "ListRootsResult",
    "ListTasksResult",
    "ListToolsResult",
    "LoggingLevel",
    "LoggingMessageNotificationParams",
    "Model",
    "ModelHint",
    "ModelPreferences",
    "NotificationParams",
    "NumberSchema",
    "PaginatedRequestParams",
    "PaginatedResult",
    "PrimitiveSchemaDefinition",
    "ProgressNotificationParams",
    "ProgressToken",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptReference",
    "PromptsCapability",
    "ReadResourceRequestParams",
    "ReadResourceResult",
    "Reference",
    "RelatedTaskMetadata",
    "RequestId",
    "RequestParams",
    "RequestedSchema",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceRequestParams",
    "ResourceTemplate",
    "ResourceTemplateReference",
    "ResourceUpdatedNotificationParams",
    "ResourcesCapability",
    "Result",
    "Role",
    "Root",
    "RootsCapability",
    "SamplingCapability",
    "SamplingContentBlock",
    "SamplingMessage",
    "SamplingMessageContent",
    "ServerCapabilities",
    "SetLevelRequestParams",
    "StringSchema",
    "SubscribeRequestParams",
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotificationParams",
    "SubscriptionsListenRequestParams",
    "SubscriptionsListenResult",
    "Task",
    "TaskError",
    "TaskMetadata",
    "TaskRequestParams",
    "TaskStatus",
    "TaskStatusNotificationParams",
    "TextContent",
    "TextResourceContents",
    "TitledItems",
    "TitledMultiSelectEnumSchema",
    "TitledSingleSelectEnumSchema",
    "Tool",
    "ToolAnnotations",
    "ToolChoice",
    "ToolExecution",
    "ToolResultContent",
    "ToolUseContent",
    "ToolsCapability",
    "UnsubscribeRequestParams",
    "UntitledItems",
    "UntitledMultiSelectEnumSchema",
    "UntitledSingleSelectEnumSchema",
    "UpdateTaskRequestParams",
    "declares",
]
