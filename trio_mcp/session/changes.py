"""Changes of what a server offers: the notifications that announce them, and the filters that select them.

Both ends use them: a server announces a change, and a client reports it to its program.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from .. import types
from ..types import JsonObject, Model, NotificationParams, ServerCapabilities, declares

if TYPE_CHECKING:
    from ..types import SubscriptionFilter

ChangeKind: TypeAlias = Literal["tools", "prompts", "resources", "updated", "task"]
"""What changed: a list, the content of a resource (`"updated"`), or a task."""

LISTS: Final[tuple[ChangeKind, ...]] = ("tools", "prompts", "resources")

METHODS: Final[Mapping[ChangeKind, str]] = {
    **{kind: f"notifications/{kind}/list_changed" for kind in LISTS},
    "updated": "notifications/resources/updated",
    "task": "notifications/tasks",
}
KINDS: Final[Mapping[str, ChangeKind]] = {method: kind for kind, method in METHODS.items()}


class Change(NamedTuple):
    """A list or a resource of the server has changed.

    Attributes:
        kind: "tools", "prompts" or "resources": that list has changed; "updated": the content of a resource has.
        uri: for "updated", the resource, which may be a part of the one that was subscribed to; for "task", its id; else None.
    """

    kind: ChangeKind
    uri: str | None = None

    @property
    def method(self) -> str:
        """The method of the notification that announces it."""
        return METHODS[self.kind]

    def params(self, meta: JsonObject | None = None) -> NotificationParams:
        """Return the params of that notification."""
        if self.uri is None:
            return NotificationParams(meta=meta)
        return types.ResourceUpdatedNotificationParams(uri=self.uri, meta=meta)


TOOLS: Final = Change("tools")
PROMPTS: Final = Change("prompts")
RESOURCES: Final = Change("resources")


def change_of(method: str, params: Model) -> Change | None:
    """Return the change that a notification announces, or None if it is about something else."""
    kind = KINDS.get(method)
    uri = params.uri if isinstance(params, types.ResourceUpdatedNotificationParams) else None
    return None if kind is None else Change(kind, uri)


def lists_in(wanted: SubscriptionFilter) -> list[ChangeKind]:
    """Return the lists whose changes a filter lets through."""
    return [kind for kind in LISTS if getattr(wanted, f"{kind}_list_changed")]


def announced_lists(wanted: SubscriptionFilter, offered: ServerCapabilities) -> list[ChangeKind]:
    """Return the lists of a filter whose changes a server announces, by its capabilities."""
    return [kind for kind in lists_in(wanted) if declares(offered, f"{kind}.listChanged")]


def filter_of(
    lists: Collection[ChangeKind], uris: Collection[str] = (), task_ids: Collection[str] = ()
) -> SubscriptionFilter:
    """Return a filter that lets through changes of these lists, of the resources at these URIs, and of these tasks."""
    # None and not False for what is not wanted: the member is then absent, as in the specification's examples.
    return types.SubscriptionFilter(
        tools_list_changed="tools" in lists or None,
        prompts_list_changed="prompts" in lists or None,
        resources_list_changed="resources" in lists or None,
        resource_subscriptions=list(uris) or None,
        task_ids=list(task_ids) or None,
    )


def changes_matching(wanted: SubscriptionFilter) -> list[Change]:
    """Return one change of each kind that a filter lets through."""
    changes = [Change(kind) for kind in lists_in(wanted)]
    return changes + [Change("updated", uri) for uri in wanted.resource_subscriptions or ()]
