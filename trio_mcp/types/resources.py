"""Resources: listing them, reading them, and subscribing to their changes."""

from typing import TYPE_CHECKING, Never

from .content import Annotations, BlobResourceContents, Resource, TextResourceContents
from .messages import NotificationParams, RequestParams, ResourceRequestParams
from .offered import Offered
from .pages import CacheableResult, PaginatedResult


class ResourceTemplate(Offered):
    """Resources whose URIs follow a template (RFC 6570)."""

    uri_template: str
    mime_type: str | None = None
    annotations: Annotations | None = None


class ListResourcesResult(PaginatedResult, CacheableResult):
    """A page of resources."""

    resources: list[Resource]


class ListResourceTemplatesResult(PaginatedResult, CacheableResult):
    """A page of resource templates."""

    resource_templates: list[ResourceTemplate]


class ReadResourceRequestParams(ResourceRequestParams):
    """The params of `resources/read`."""


class ReadResourceResult(CacheableResult):
    """The contents of a resource, or of each of its parts."""

    contents: list[TextResourceContents | BlobResourceContents]

    @property
    def text(self) -> str:
        """All text contents, joined."""
        return "".join(part.text for part in self.contents if isinstance(part, TextResourceContents))

    if not TYPE_CHECKING:

        def __getitem__(self, _key: object) -> Never:
            # FastMCP returns a list.
            raise TypeError("'ReadResourceResult' object is not subscriptable: write .contents[0], or .text")


class SubscribeRequestParams(RequestParams):
    """The params of `resources/subscribe` (up to 2025-11-25)."""

    uri: str


class UnsubscribeRequestParams(RequestParams):
    """The params of `resources/unsubscribe` (up to 2025-11-25)."""

    uri: str


class ResourceUpdatedNotificationParams(NotificationParams):
    """A resource that the client subscribed to, or a part of it, has changed."""

    uri: str
