"""The table from request methods to the functions that serve them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ..session import RequestCheck, RequestFacts, Route
from ..types import ListPromptsResult, ListResourcesResult, ListResourceTemplatesResult, ListToolsResult
from .pages import Pages, PageSettings
from .prompts import get_prompt
from .registry import Registry
from .resources import read_resource
from .tool import Tool, call_tool, check_retry_headers


class Router:
    """Serves the requests about a registry, for one service.

    Attributes:
        routes: the functions that serve a request, by method.
        request_checks: the functions that check a request that continues a call, which no route sees.
    """

    def __init__(self, registry: Registry, settings: PageSettings) -> None:
        self._registry = registry
        tools, prompts = registry.tools, registry.prompts
        resources, templates = registry.resources, registry.templates
        template_pages = Pages(templates, settings, ListResourceTemplatesResult, "resource_templates")
        # The catalogs are bound here, so that a request goes directly to the module of what it is about.
        self.routes: Mapping[str, Route] = {
            "tools/list": Pages(tools, settings, ListToolsResult, "tools", self._uncallable_tools).serve,
            "tools/call": partial(call_tool, tools),
            "prompts/list": Pages(prompts, settings, ListPromptsResult, "prompts").serve,
            "prompts/get": partial(get_prompt, prompts),
            "resources/list": Pages(resources, settings, ListResourcesResult, "resources").serve,
            "resources/templates/list": template_pages.serve,
            "resources/read": partial(read_resource, resources, templates),
            "completion/complete": registry.completions.complete,
        }
        self.request_checks: Mapping[str, RequestCheck] = {"tools/call": partial(check_retry_headers, tools)}

    def _uncallable_tools(self, facts: RequestFacts) -> frozenset[Tool]:
        """Return the tools that this client cannot call (row 30), where a list belongs to its session."""
        # A modern list belongs to no session, and may be cached for other clients.
        if not facts.terms.codec.revision.hides_gated:
            return frozenset()
        return frozenset(tool for tool in self._registry.tools if not tool.callable_by(facts.client_capabilities))
