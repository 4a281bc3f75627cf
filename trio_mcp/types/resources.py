"""Resources: listing, reading and watching them."""

from .base import MetaModel
from .content import Annotations, BlobResourceContents, Icon, Resource, TextResourceContents
from .messages import CacheableResult, NotificationParams, PaginatedResult, RequestParams, ResourceRequestParams


class ResourceTemplate(MetaModel):
    """A family of resources, by an RFC 6570 URI template."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None


class ListResourcesResult(PaginatedResult, CacheableResult):
    """A page of resources."""

    resources: list[Resource]


class ListResourceTemplatesResult(PaginatedResult, CacheableResult):
    """A page of resource templates."""

    resource_templates: list[ResourceTemplate]


class ReadResourceRequestParams(ResourceRequestParams):
    """Read a resource."""


class ReadResourceResult(CacheableResult):
    """The contents of a resource, or of the parts it stands for."""

    contents: list[TextResourceContents | BlobResourceContents]

    @property
    def text(self) -> str:
        """What of it is text, joined."""
        return "".join(part.text for part in self.contents if isinstance(part, TextResourceContents))


class SubscribeRequestParams(RequestParams):
    """Watch a resource (until 2025-11-25)."""

    uri: str


class UnsubscribeRequestParams(RequestParams):
    """Stop watching a resource (until 2025-11-25)."""

    uri: str


class ResourceUpdatedNotificationParams(NotificationParams):
    """A watched resource, or a part of it, has changed."""

    uri: str
