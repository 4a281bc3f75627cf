"""What a server offers: its tools, prompts, resources and completions. It may change while it is served, in any thread."""

from __future__ import annotations

from collections.abc import Callable

from ..session.subscriptions import PROMPTS, RESOURCES, TOOLS, Change
from ..types import PromptsCapability, ResourcesCapability, ServerCapabilities, ToolsCapability
from .catalog import Catalog
from .completion import Completer
from .prompts import Prompt
from .resources import Resource, Template
from .tool import Tool


class Registry:
    """Everything by its name or URI.

    Args:
        on_change: told of each change; what it says goes to the clients.
    """

    def __init__(self, on_change: Callable[[Change], None]) -> None:
        self.tools: Catalog[Tool] = Catalog("tool", lambda: on_change(TOOLS))
        self.prompts: Catalog[Prompt] = Catalog("prompt", lambda: on_change(PROMPTS))
        self.resources: Catalog[Resource] = Catalog("resource", lambda: on_change(RESOURCES))
        self.templates: Catalog[Template] = Catalog("resource template", lambda: on_change(RESOURCES))
        self.completers: dict[tuple[str, str], Completer] = {}
        """By prompt name or template, and argument."""
        self.completes = False
        """There was a completion once; as for `Listing.ever`."""

    @property
    def capabilities(self) -> ServerCapabilities:
        """What to declare. A kind of thing stays declared once there was one, since a client may have been told so."""
        resources = self.resources.ever or self.templates.ever
        return ServerCapabilities(
            logging={},
            tools=ToolsCapability(list_changed=True),
            prompts=PromptsCapability(list_changed=True) if self.prompts.ever else None,
            resources=ResourcesCapability(subscribe=True, list_changed=True) if resources else None,
            completions={} if self.completes else None,
        )

    def add_completion(self, target: str, argument: str, completer: Completer) -> None:
        """Raises ValueError when the argument has one."""
        if (target, argument) in self.completers:
            raise ValueError(f"the argument {argument!r} of {target} has a completion already")
        self.completers[target, argument] = completer
        self.completes = True

    def remove_completions(self, target: str) -> None:
        """Those of a prompt or a template that is offered no more: another one may get its name."""
        for key in [key for key in tuple(self.completers) if key[0] == target]:
            self.completers.pop(key, None)

    def __repr__(self) -> str:
        kinds = (self.tools, self.prompts, self.resources, self.templates)
        return f"<Registry {', '.join(map(repr, kinds))}>"
