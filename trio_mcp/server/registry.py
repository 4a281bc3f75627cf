"""What a server offers: its tools, prompts, resources and completions. It may change while it is served, in any thread."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Final

from ..protocol.meta import TASKS_EXTENSION
from ..session.changes import PROMPTS, RESOURCES, TOOLS, Change
from ..types import JsonObject, PromptsCapability, ResourcesCapability, ServerCapabilities, ToolsCapability
from .catalog import Catalog
from .completion import Completions
from .tool import Tool

if TYPE_CHECKING:
    from .prompts import Prompt
    from .resources import Resource, Template

TASKS: Final[JsonObject] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
"""What a server declares for 2025-11-25 if a tool of it runs as a task. A host looks for the innermost object."""


class Registry:
    """Everything by its name or URI.

    Args:
        on_change: called with each change, to notify the clients.
    """

    def __init__(self, on_change: Callable[[Change], None]) -> None:
        self.tools: Catalog[Tool] = Catalog("tool", lambda: on_change(TOOLS))
        self.prompts: Catalog[Prompt] = Catalog("prompt", lambda: on_change(PROMPTS))
        self.resources: Catalog[Resource] = Catalog("resource", lambda: on_change(RESOURCES))
        self.templates: Catalog[Template] = Catalog("resource template", lambda: on_change(RESOURCES))
        self.runs_tasks = False
        """Whether a tool was ever offered whose calls run as tasks."""
        self.keeps_results = False
        """Whether a tool has a `max_result`, so that clients read results as resources."""
        self.completions = Completions(self.prompts, self.resources, self.templates)

    def with_tool(self, tool: Tool) -> Registry:
        """Return a registry that shares everything with this one but its list of tools, which has one more."""
        other = copy(self)
        other.tools = Catalog("tool", lambda: None)
        for each in (*self.tools, tool):
            other.tools.add(each.name, each)
        return other

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities to declare."""
        # By what was ever offered and not by what is: a client that read the declaration may call a method of it, and
        # would get "method not found" instead of an empty list.
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
