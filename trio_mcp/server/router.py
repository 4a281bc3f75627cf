"""The table from request methods to the functions that serve them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from .. import server, types
from ..session import RequestCheck, Route
from .pages import Pages, PageSettings
from .registry import Registry
from .tool import call_tool, check_retry, uncallable_tools
from .tool_access import RestrictedTools

if TYPE_CHECKING:
    from .tool_search import SearchedTools


def routes_of(registry: Registry, settings: PageSettings, search: SearchedTools | None = None) -> Mapping[str, Route]:
    """Return the functions that serve the requests about a registry, by method.

    Args:
        search: takes the place of the list of tools.
    """
    tools, prompts = registry.tools, registry.prompts
    resources, templates = registry.resources, registry.templates
    restricted = RestrictedTools(tools)
    hidden = partial(uncallable_tools, tools, restricted)
    # The catalogs are bound here, so that a request goes directly to the module of what it is about.
    routes: dict[str, Route] = {
        "tools/list": Pages(tools, settings, lambda: types.ListToolsResult, "tools", hidden, restricted.hideable).serve,
        "tools/call": partial(call_tool, tools),
        "prompts/list": Pages(prompts, settings, lambda: types.ListPromptsResult, "prompts").serve,
        "prompts/get": lambda facts, params: server.prompts.get_prompt(prompts, facts, params),
        "resources/list": Pages(resources, settings, lambda: types.ListResourcesResult, "resources").serve,
        "resources/templates/list": Pages(
            templates, settings, lambda: types.ListResourceTemplatesResult, "resource_templates"
        ).serve,
        "resources/read": lambda facts, params: server.resources.read_resource(
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
    return {"tools/call": partial(check_retry, registry.tools) if search is None else search.check_retry}
