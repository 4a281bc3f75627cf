"""Subscribing to changes (2026-07-28)."""

from .base import Model
from .messages import NotificationParams, RequestParams, Result


class SubscriptionFilter(Model):
    """The notifications that a client subscribes to. `task_ids` belongs to the tasks extension."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None


class SubscriptionsListenRequestParams(RequestParams):
    """The params of `subscriptions/listen`."""

    notifications: SubscriptionFilter


class SubscriptionsAcknowledgedNotificationParams(NotificationParams):
    """The first message of a subscription: the part of the filter that the server accepts."""

    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result):
    """The server has ended the subscription that `_meta` names."""
