"""The models of MCP: those of the newest revision, 2026-07-28, and what only older revisions have."""

# One model serves every revision. A member that a revision does not have is removed or rewritten by its codec (`protocol.codec`),
# so that servers and clients know one set of classes. With a set of models for each revision, every tool that hands on a value
# would have to convert it.

from .base import JsonObject as JsonObject, JsonValue as JsonValue, Model as Model
from .capabilities import (
    ClientCapabilities as ClientCapabilities,
    ElicitationCapability as ElicitationCapability,
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
    Icon as Icon,
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
)
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
from .implementation import Implementation as Implementation
from .lifecycle import (
    DiscoverResult as DiscoverResult,
    InitializeRequestParams as InitializeRequestParams,
    InitializeResult as InitializeResult,
)
from .logging import (
    LOGGING_LEVELS as LOGGING_LEVELS,
    LoggingLevel as LoggingLevel,
    LoggingMessageNotificationParams as LoggingMessageNotificationParams,
    SetLevelRequestParams as SetLevelRequestParams,
)
from .messages import (
    CacheableResult as CacheableResult,
    CacheScope as CacheScope,
    Cursor as Cursor,
    EmptyResult as EmptyResult,
    InputResponseRequestParams as InputResponseRequestParams,
    InputResponses as InputResponses,
    NotificationParams as NotificationParams,
    PaginatedRequestParams as PaginatedRequestParams,
    PaginatedResult as PaginatedResult,
    ProgressToken as ProgressToken,
    RequestId as RequestId,
    RequestParams as RequestParams,
    ResourceRequestParams as ResourceRequestParams,
    Result as Result,
)
from .notifications import (
    CancelledNotificationParams as CancelledNotificationParams,
    ProgressNotificationParams as ProgressNotificationParams,
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
from .tools import (
    CallToolRequestParams as CallToolRequestParams,
    CallToolResult as CallToolResult,
    ListToolsResult as ListToolsResult,
    Tool as Tool,
    ToolAnnotations as ToolAnnotations,
    ToolExecution as ToolExecution,
)
