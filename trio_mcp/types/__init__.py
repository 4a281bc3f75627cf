"""The models of MCP: those of the newest revision, 2026-07-28, and what only older revisions have."""

# One model serves every revision. A member that a revision does not have is removed or rewritten by its codec (`protocol.codec`),
# so that servers and clients know one set of classes. With a set of models for each revision, every tool that hands on a value
# would have to convert it.

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
    from .base import JsonObject as JsonObject, JsonValue as JsonValue, Model as Model
    from .capabilities import (
        ClientCapabilities as ClientCapabilities,
        ElicitationCapability as ElicitationCapability,
        Implementation as Implementation,
        InitializeRequestParams as InitializeRequestParams,
        InitializeResult as InitializeResult,
        PromptsCapability as PromptsCapability,
        ResourcesCapability as ResourcesCapability,
        RootsCapability as RootsCapability,
        SamplingCapability as SamplingCapability,
        ServerCapabilities as ServerCapabilities,
        ToolsCapability as ToolsCapability,
        declares as declares,
    )
    from .completion import (
        CompleteRequestParams as CompleteRequestParams,
        CompleteResult as CompleteResult,
        Completion as Completion,
        CompletionArgument as CompletionArgument,
        CompletionContext as CompletionContext,
        PromptReference as PromptReference,
        Reference as Reference,
        ResourceTemplateReference as ResourceTemplateReference,
    )
    from .content import (
        Annotations as Annotations,
        AudioContent as AudioContent,
        BlobResourceContents as BlobResourceContents,
        ContentBlock as ContentBlock,
        EmbeddedResource as EmbeddedResource,
        ImageContent as ImageContent,
        Resource as Resource,
        ResourceContents as ResourceContents,
        ResourceLink as ResourceLink,
        Role as Role,
        SamplingContentBlock as SamplingContentBlock,
        TextContent as TextContent,
        TextResourceContents as TextResourceContents,
        ToolResultContent as ToolResultContent,
        ToolUseContent as ToolUseContent,
        UnknownContent as UnknownContent,
    )
    from .discovery import DiscoverResult as DiscoverResult
    from .elicitation import (
        BooleanSchema as BooleanSchema,
        ElicitationCompleteNotificationParams as ElicitationCompleteNotificationParams,
        ElicitRequest as ElicitRequest,
        ElicitRequestFormParams as ElicitRequestFormParams,
        ElicitRequestParams as ElicitRequestParams,
        ElicitRequestURLParams as ElicitRequestURLParams,
        ElicitResult as ElicitResult,
        ElicitValue as ElicitValue,
        EnumOption as EnumOption,
        LegacyTitledEnumSchema as LegacyTitledEnumSchema,
        NumberSchema as NumberSchema,
        PrimitiveSchemaDefinition as PrimitiveSchemaDefinition,
        RequestedSchema as RequestedSchema,
        StringSchema as StringSchema,
        TitledItems as TitledItems,
        TitledMultiSelectEnumSchema as TitledMultiSelectEnumSchema,
        TitledSingleSelectEnumSchema as TitledSingleSelectEnumSchema,
        UntitledItems as UntitledItems,
        UntitledMultiSelectEnumSchema as UntitledMultiSelectEnumSchema,
        UntitledSingleSelectEnumSchema as UntitledSingleSelectEnumSchema,
    )
    from .log_levels import LOGGING_LEVELS as LOGGING_LEVELS, LoggingLevel as LoggingLevel
    from .logging import (
        LoggingMessageNotificationParams as LoggingMessageNotificationParams,
        SetLevelRequestParams as SetLevelRequestParams,
    )
    from .messages import (
        CacheScope as CacheScope,
        Cursor as Cursor,
        EmptyResult as EmptyResult,
        InputResponseRequestParams as InputResponseRequestParams,
        InputResponses as InputResponses,
        NotificationParams as NotificationParams,
        ProgressToken as ProgressToken,
        RequestId as RequestId,
        RequestParams as RequestParams,
        ResourceRequestParams as ResourceRequestParams,
        Result as Result,
        TaskMetadata as TaskMetadata,
    )
    from .notifications import (
        CancelledNotificationParams as CancelledNotificationParams,
        ProgressNotificationParams as ProgressNotificationParams,
    )
    from .offered import Icon as Icon
    from .pages import (
        CacheableResult as CacheableResult,
        PaginatedRequestParams as PaginatedRequestParams,
        PaginatedResult as PaginatedResult,
    )
    from .prompts import (
        GetPromptRequestParams as GetPromptRequestParams,
        GetPromptResult as GetPromptResult,
        ListPromptsResult as ListPromptsResult,
        Prompt as Prompt,
        PromptArgument as PromptArgument,
        PromptMessage as PromptMessage,
    )
    from .resources import (
        ListResourcesResult as ListResourcesResult,
        ListResourceTemplatesResult as ListResourceTemplatesResult,
        ReadResourceRequestParams as ReadResourceRequestParams,
        ReadResourceResult as ReadResourceResult,
        ResourceTemplate as ResourceTemplate,
        ResourceUpdatedNotificationParams as ResourceUpdatedNotificationParams,
        SubscribeRequestParams as SubscribeRequestParams,
        UnsubscribeRequestParams as UnsubscribeRequestParams,
    )
    from .roots import ListRootsRequest as ListRootsRequest, ListRootsResult as ListRootsResult, Root as Root
    from .rounds import (
        InputRequest as InputRequest,
        InputRequests as InputRequests,
        InputRequiredResult as InputRequiredResult,
        InputResponse as InputResponse,
    )
    from .sampling import (
        CreateMessageRequest as CreateMessageRequest,
        CreateMessageRequestParams as CreateMessageRequestParams,
        CreateMessageResult as CreateMessageResult,
        ModelHint as ModelHint,
        ModelPreferences as ModelPreferences,
        SamplingMessage as SamplingMessage,
        SamplingMessageContent as SamplingMessageContent,
        ToolChoice as ToolChoice,
    )
    from .subscriptions import (
        SubscriptionFilter as SubscriptionFilter,
        SubscriptionsAcknowledgedNotificationParams as SubscriptionsAcknowledgedNotificationParams,
        SubscriptionsListenRequestParams as SubscriptionsListenRequestParams,
        SubscriptionsListenResult as SubscriptionsListenResult,
    )
    from .tasks import (
        CancelTaskResult as CancelTaskResult,
        CreateTaskResult as CreateTaskResult,
        DetailedTask as DetailedTask,
        GetTaskPayloadResult as GetTaskPayloadResult,
        GetTaskResult as GetTaskResult,
        ListTasksResult as ListTasksResult,
        RelatedTaskMetadata as RelatedTaskMetadata,
        Task as Task,
        TaskError as TaskError,
        TaskRequestParams as TaskRequestParams,
        TaskStatus as TaskStatus,
        TaskStatusNotificationParams as TaskStatusNotificationParams,
        UpdateTaskRequestParams as UpdateTaskRequestParams,
    )
    from .tool_pages import ListToolsResult as ListToolsResult
    from .tools import (
        CallToolRequestParams as CallToolRequestParams,
        CallToolResult as CallToolResult,
        Tool as Tool,
        ToolAnnotations as ToolAnnotations,
        ToolExecution as ToolExecution,
    )
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "base": "JsonObject JsonValue Model",
            "capabilities": (
                "ClientCapabilities ElicitationCapability Implementation InitializeRequestParams "
                "InitializeResult PromptsCapability ResourcesCapability RootsCapability SamplingCapability "
                "ServerCapabilities ToolsCapability declares"
            ),
            "completion": (
                "CompleteRequestParams CompleteResult Completion CompletionArgument CompletionContext "
                "PromptReference Reference ResourceTemplateReference"
            ),
            "content": (
                "Annotations AudioContent BlobResourceContents ContentBlock EmbeddedResource ImageContent "
                "Resource ResourceContents ResourceLink Role SamplingContentBlock TextContent TextResourceContents "
                "ToolResultContent ToolUseContent UnknownContent"
            ),
            "discovery": "DiscoverResult",
            "elicitation": (
                "BooleanSchema ElicitRequest ElicitRequestFormParams ElicitRequestParams ElicitRequestURLParams "
                "ElicitResult ElicitValue ElicitationCompleteNotificationParams EnumOption LegacyTitledEnumSchema "
                "NumberSchema PrimitiveSchemaDefinition RequestedSchema StringSchema TitledItems "
                "TitledMultiSelectEnumSchema TitledSingleSelectEnumSchema UntitledItems "
                "UntitledMultiSelectEnumSchema UntitledSingleSelectEnumSchema"
            ),
            "log_levels": "LOGGING_LEVELS LoggingLevel",
            "logging": "LoggingMessageNotificationParams SetLevelRequestParams",
            "messages": (
                "CacheScope Cursor EmptyResult InputResponseRequestParams InputResponses "
                "NotificationParams ProgressToken RequestId RequestParams "
                "ResourceRequestParams Result TaskMetadata"
            ),
            "notifications": "CancelledNotificationParams ProgressNotificationParams",
            "offered": "Icon",
            "pages": "CacheableResult PaginatedRequestParams PaginatedResult",
            "prompts": ("GetPromptRequestParams GetPromptResult ListPromptsResult Prompt PromptArgument PromptMessage"),
            "resources": (
                "ListResourceTemplatesResult ListResourcesResult ReadResourceRequestParams ReadResourceResult "
                "ResourceTemplate ResourceUpdatedNotificationParams SubscribeRequestParams UnsubscribeRequestParams"
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
                "CancelTaskResult CreateTaskResult DetailedTask GetTaskPayloadResult GetTaskResult ListTasksResult "
                "RelatedTaskMetadata Task TaskError TaskRequestParams TaskStatus TaskStatusNotificationParams "
                "UpdateTaskRequestParams"
            ),
            "tool_pages": "ListToolsResult",
            "tools": ("CallToolRequestParams CallToolResult Tool ToolAnnotations ToolExecution"),
        },
        in_calls=(
            "completion content discovery elicitation notifications pages prompts resources roots rounds sampling tasks "
            "tool_pages"
        ),
    )
