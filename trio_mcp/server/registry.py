"""What a server offers: its tools, prompts, resources and completions. It may change while it is served, in any thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, Self, TypeVar

from .. import server, types
from ..errors import ResourceNotFound
from ..protocol.revisions import TASKS_EXTENSION
from ..protocol.uri.uris import ascii_uri, check_uri, is_kept_here, normal_uri
from ..runtime.loop_turn import LoopTurn
from ..session import Caller, RequestCheck, Route
from ..session.calls.call import PlainRoute
from ..session.calls.facts import TaskSupport
from ..session.subscriptions import PROMPTS, RESOURCES, TOOLS, Change
from ..types import (
    JsonObject,
    PromptsCapability,
    ResourcesCapability,
    ServerCapabilities,
    ToolsCapability,
)
from .access import Access, Restrictable, Restricted
from .catalog import CHANGING, Catalog
from .data.completion import Completions
from .pages import Pages, PageSettings
from .tools.tool import Tool, call_tool, check_retry, uncallable_tools

if TYPE_CHECKING:
    from .data.prompts import Prompt
    from .data.resources import Resource, ResourceReader, Template
    from .mounts import MountPoint, Mounts
    from .tools.search import SearchedTools

TASKS: Final[JsonObject] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
"""What a server declares for 2025-11-25 if a tool of it runs as a task. A host looks for the innermost object."""


class MountableItem(Protocol):
    """An item that knows who may use it, the servers that it comes through, and what it is in one more."""

    @property
    def mounts(self) -> Mounts: ...

    @property
    def access(self) -> Access | None: ...

    def mounted(self, mount: MountPoint, /) -> Self: ...


T = TypeVar("T", bound=MountableItem)


class ByName(Generic[T]):
    """The names of tools and prompts in the outer server."""

    __slots__ = ("mount",)

    def __init__(self, mount: MountPoint) -> None:
        self.mount = mount

    def key(self, key: str, /) -> str:
        return self.mount.outer_name(key)

    def item(self, item: T, /) -> T:
        return item.mounted(self.mount)


class ByUri(ByName[T]):
    """The URIs of resources and templates in the outer server."""

    __slots__ = ()

    def key(self, key: str, /) -> str:
        return self.mount.outer_uri(key)


def source(item: MountableItem) -> str | None:
    """Return from which mounted server an item is, for errors; None for one of the server itself."""
    return server.mounts.source_of(item.mounts) if item.mounts else None


class Registry:
    """Everything by its name or URI.

    Args:
        on_change: called with each change, to notify the clients.
        owner: the server, for errors.

    Attributes:
        mounts: the registries of the servers that are mounted in this one.
        kept: reads the results that the server behind a proxy has kept; None for a server, which keeps its own.
    """

    def __init__(self, on_change: Callable[[Change], None], owner: str = "the server") -> None:
        self.owner = owner
        self.tools: Catalog[Tool] = Catalog(
            "tool", lambda: on_change(TOOLS), owner, source, self._note_tool, refusal=self._is_of_other_prefix
        )
        self.prompts: Catalog[Prompt] = Catalog(
            "prompt", lambda: on_change(PROMPTS), owner, source, refusal=self._is_of_other_prefix
        )
        self.resources: Catalog[Resource] = Catalog(
            "resource", lambda: on_change(RESOURCES), owner, source, normal=normal_uri
        )
        self.templates: Catalog[Template] = Catalog(
            "resource template", lambda: on_change(RESOURCES), owner, source, normal=normal_uri
        )
        self.runs_tasks = False
        """Whether a tool was ever offered whose calls run as tasks."""
        self.keeps_results = False
        """Whether a tool has a `max_result`, so that clients read results as resources."""
        self.completions = Completions(self.prompts, self.resources, self.templates)
        self.mounts: dict[MountPoint, Registry] = {}
        self.kept: ResourceReader | None = None
        self._restricted_resources = Restricted(self.resources)
        self._restricted_templates = Restricted(self.templates)

    def mount(self, mount: MountPoint, other: Registry) -> None:
        """Take over what another registry has now and will have later.

        Raises:
            ValueError: a name, URI or prefix is taken, or an item cannot be here; or the other one has this one in it. Nothing
                has changed then.
        """
        tools: ByName[Tool] = ByName(mount)
        prompts: ByName[Prompt] = ByName(mount)
        resources: ByUri[Resource] = ByUri(mount)
        templates: ByUri[Template] = ByUri(mount)
        with CHANGING:
            if other.contains(self):
                raise ValueError(
                    f"{mount.source} cannot be mounted in {self.owner}, which is mounted in it, or is itself"
                )
            for known in self.mounts:
                if known.prefix == mount.prefix:
                    raise ValueError(
                        f"{mount.source} cannot be mounted: {known.source} has the same prefix in {self.owner}"
                    )
            self.tools.check_follow(other.tools, tools)
            self.prompts.check_follow(other.prompts, prompts)
            self.resources.check_follow(other.resources, resources)
            self.templates.check_follow(other.templates, templates)
            # Before the items: code that finds one of them looks up its completions here.
            self.completions.mounted[mount] = other.completions
            self.mounts = {**self.mounts, mount: other}
            self.tools.follow(other.tools, tools)
            self.prompts.follow(other.prompts, prompts)
            self.resources.follow(other.resources, resources)
            self.templates.follow(other.templates, templates)
        for own, theirs in ((self.tools, other.tools), (self.prompts, other.prompts)):
            if len(theirs):
                own.announce()
        if len(other.resources) or len(other.templates):
            self.resources.announce()

    def contains(self, other: Registry) -> bool:
        """Return whether another registry is this one, or is mounted in it, however deep."""
        return other is self or any(mounted.contains(other) for mounted in self.mounts.values())

    def offers(self, uri: str) -> bool:
        """Return whether there is a resource of this URI, or a template that it fits."""
        if self.resources.key_of(uri) is not None:
            return True
        spellings = [each for each in (ascii_uri(uri), normal_uri(uri)) if each is not None]
        return any(template.pattern.match(each) is not None for template in self.templates for each in spellings)

    def access_to(self, uri: str, turn: LoopTurn) -> Access | None:
        """Return who may read a URI; None for everybody, or if nothing has it. Raises as `matching_template` does."""
        found: Resource | Template | None = self.resources.find(uri)
        # Not while no template has restrictions: to match a URI with all of them costs something.
        if found is None and self._restricted_templates.items():
            matching = server.data.resources.matching_template(self.templates, uri, turn)
            found = None if matching is None else matching[0]
        return None if found is None else found.access

    def check_reader(self, caller: Caller | None, uri: str, turn: LoopTurn) -> None:
        """Check who subscribes to a resource.

        Raises:
            ResourceNotFound: the caller does not see the resource.
            RemoteProtocolError: -32600, it lacks the scopes; -32602, that is not a URI.
        """
        if self._restricted_resources.items() or self._restricted_templates.items():
            check_uri(uri)
            if (access := self.access_to(uri, turn)) is not None:
                access.check(caller, f"the resource {uri[:128]}", partial(ResourceNotFound, uri))

    def scopes_by_item(self) -> Mapping[str, frozenset[str]]:
        """Return the scopes of each tool, prompt, resource and template that needs some, by what people call it."""
        items: list[tuple[str, Restrictable]] = [
            *((f"the tool {name}", each) for name, each in self.tools.by_key.items()),
            *((f"the prompt {name}", each) for name, each in self.prompts.by_key.items()),
            *((f"the resource {uri}", each) for uri, each in self.resources.by_key.items()),
            *((f"the resource template {uri}", each) for uri, each in self.templates.by_key.items()),
        ]
        return {name: each.access.scopes for name, each in items if each.access is not None and each.access.scopes}

    def reader_of_kept(self, uri: str) -> ResourceReader | None:
        """Return what reads a result that is kept behind a mounted proxy; None if it may be kept by the server itself."""
        if self.kept is not None:
            return self.kept
        for mount, inner in self.mounts.items():
            uri_there = None if is_kept_here(uri) else mount.own_uri(uri)
            reader = None if uri_there is None else inner.reader_of_kept(uri_there)
            if reader is not None:
                return reader.mounted(mount)
        return None

    def _is_of_other_prefix(self, name: str, item: MountableItem) -> str | None:
        """Return why an item of a peer cannot have this name: names of another mounted server begin so; None if it can."""
        # So that a server behind the prefix "git" cannot pass its tool "hub_push" off as "push" of one behind "git_hub", and so
        # that it does not matter which of the two has listed its tools first. URIs need no such rule: no prefix has a slash.
        own = item.mounts[-1].prefix if item.mounts else ""
        for mount in self.mounts:
            if len(mount.prefix) > len(own) and name.startswith(f"{mount.prefix}_"):
                return f"in {self.owner}, the names that begin with '{mount.prefix}_' are those of {mount.source}"
        return None

    def _note_tool(self, tool: Tool) -> None:
        self.keeps_results = self.keeps_results or tool.max_result is not None
        self.runs_tasks = self.runs_tasks or tool.task is not TaskSupport.FORBIDDEN

    def with_tools(self, tools: Sequence[Tool]) -> Registry:
        """Return a registry that shares everything with this one but its list of tools, which has these, too."""
        other = copy(self)
        other.tools = Catalog("tool", lambda: None)
        for each in (*self.tools, *tools):
            other.tools.add(each.name, each)
        for each in tools:
            other._note_tool(each)  # noqa: SLF001  it is of this class
        return other

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities to declare."""
        # By what was ever offered and not by what is: a client that read the declaration may call a method of it, and
        # would get "method not found" instead of an empty list. Tools are declared from the beginning: many hosts ask for their
        # list whatever is declared, and the declaration of a legacy session cannot change when the first one is added.
        resources = self.resources.was_ever_filled or self.templates.was_ever_filled or self.keeps_results
        return ServerCapabilities(
            logging={},
            tools=ToolsCapability(list_changed=True),
            prompts=PromptsCapability(list_changed=True) if self.prompts.was_ever_filled else None,
            resources=ResourcesCapability(subscribe=True, list_changed=True) if resources else None,
            tasks=TASKS if self.runs_tasks else None,
            extensions={TASKS_EXTENSION: {}} if self.runs_tasks else None,
            completions={} if self.completions.was_ever_filled else None,
        )


# The table from request methods to the functions that serve them.


def routes_of(registry: Registry, settings: PageSettings, search: SearchedTools | None = None) -> Mapping[str, Route]:
    """Return the functions that serve the requests about a registry, by method.

    Args:
        search: takes the place of the list of tools.
    """
    tools, prompts = registry.tools, registry.prompts
    resources, templates = registry.resources, registry.templates
    restricted, restricted_prompts = Restricted(tools), Restricted(prompts)
    restricted_resources, restricted_templates = Restricted(resources), Restricted(templates)
    hidden = partial(uncallable_tools, tools, restricted)
    # The catalogs are bound here, so that a request goes directly to the module of what it is about.
    routes: dict[str, Route] = {
        "tools/list": Pages(tools, settings, lambda: types.ListToolsResult, "tools", hidden, restricted.hideable).serve,
        "tools/call": PlainRoute(call_tool, tools),
        "prompts/list": Pages(
            prompts,
            settings,
            lambda: types.ListPromptsResult,
            "prompts",
            restricted_prompts.hidden,
            restricted_prompts.hideable,
        ).serve,
        "prompts/get": lambda facts, params: server.data.prompts.get_prompt(prompts, facts, params),
        "resources/list": Pages(
            resources,
            settings,
            lambda: types.ListResourcesResult,
            "resources",
            restricted_resources.hidden,
            restricted_resources.hideable,
        ).serve,
        "resources/templates/list": Pages(
            templates,
            settings,
            lambda: types.ListResourceTemplatesResult,
            "resource_templates",
            restricted_templates.hidden,
            restricted_templates.hideable,
        ).serve,
        "resources/read": lambda facts, params: server.data.resources.read_resource(
            resources, templates, registry.reader_of_kept, facts, params
        ),
        "completion/complete": registry.completions.complete,
    }
    if search is not None:
        listed = Pages(search, settings, lambda: types.ListToolsResult, "tools", search.hidden, search.hideable)
        routes |= {"tools/list": listed.serve, "tools/call": search.searching(routes["tools/call"])}
    return routes


def request_checks_of(registry: Registry, search: SearchedTools | None = None) -> Mapping[str, RequestCheck]:
    """Return the functions that check a request that continues a call, which no route sees, by method."""
    return {
        "tools/call": partial(check_retry, registry.tools) if search is None else search.check_retry,
        "prompts/get": lambda facts, params: server.data.prompts.check_prompt(registry.prompts, facts, params),
        "resources/read": lambda facts, params: server.data.resources.check_reading(registry.access_to, facts, params),
    }
