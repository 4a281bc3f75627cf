"""The table from request methods to the functions that serve them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from .. import server, types
from ..session import RequestCheck, Route
from .pages import Pages, PageSettings
from .registry import Registry
from .tool import call_tool, check_retry, uncallable_tools
from .tool_access import RestrictedTools


def routes_of(registry: Registry, settings: PageSettings) -> Mapping[str, Route]:
    """Return the functions that serve the requests about a registry, by method."""
    tools, prompts = registry.tools, registry.prompts
    resources, templates = registry.resources, registry.templates
    restricted = RestrictedTools(tools)
    hidden = partial(uncallable_tools, tools, restricted)
    # The catalogs are bound here, so that a request goes directly to the module of what it is about.
    return {
        "tools/list": Pages(tools, settings, lambda: types.ListToolsResult, "tools", hidden, restricted.hideable).serve,
        "tools/call": partial(call_tool, tools),
        "prompts/list": Pages(prompts, settings, lambda: types.ListPromptsResult, "prompts").serve,
        "prompts/get": lambda facts, params: server.prompts.get_prompt(prompts, facts, params),
        "resources/list": Pages(resources, settings, lambda: types.ListResourcesResult, "resources").serve,
        "resources/templates/list": Pages(
            templates, settings, lambda: types.ListResourceTemplatesResult, "resource_templates"
        ).serve,
        "resources/read": lambda facts, params: server.resources.read_resource(resources, templates, facts, params),
        "completion/complete": registry.completions.complete,
    }


def request_checks_of(registry: Registry) -> Mapping[str, RequestCheck]:
    """Return the functions that check a request that continues a call, which no route sees, by method."""
    return {"tools/call": partial(check_retry, registry.tools)}
