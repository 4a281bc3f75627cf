"""Listening for changes (2026-07-28)."""

from .base import Model
from .messages import NotificationParams, RequestParams, Result


class SubscriptionFilter(Model):
    """Which notifications a listener wants; the extension's `taskIds` is kept as an extra member."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None


class SubscriptionsListenRequestParams(RequestParams):
    """Start to listen."""

    notifications: SubscriptionFilter


class SubscriptionsAcknowledgedNotificationParams(NotificationParams):
    """The first message of a stream: what of the filter the server honours."""

    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result):
    """The server has ended the stream; `_meta` names the subscription."""
