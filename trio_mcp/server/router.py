"""The table from request methods to what serves them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from ..errors import RemoteProtocolError, ResourceNotFound
from ..protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Encoded
from ..protocol.sealing.cursors import Cursors
from ..protocol.sealing.request_state import KeyRing
from ..protocol.uri.uris import check_uri
from ..session import Plan, RequestCheck, RequestFacts, Route
from ..types import (
    CallToolRequestParams,
    CompleteRequestParams,
    GetPromptRequestParams,
    Implementation,
    Model,
    PromptReference,
    ReadResourceRequestParams,
)
from .completion import NOTHING
from .pages import ListOptions, Pages, page_of_prompts, page_of_resources, page_of_templates, page_of_tools
from .registry import Registry
from .tool import Tool


class Router:
    """Serves the requests about a registry, for one service.

    Args:
        keys: what signs cursors, shared by all nodes that serve the same lists; random ones for this process when None.
    """

    def __init__(
        self, registry: Registry, identity: Implementation, options: ListOptions, keys: KeyRing | None = None
    ) -> None:
        self._registry = registry
        self._identity = identity
        self._keys = keys
        signature = Encoded(identity.encode())
        shared = (options, signature, lambda: self._cursors)
        self._tools: Pages[Tool] = Pages(registry.tools, *shared, page_of_tools, self._hidden)
        self._prompts = Pages(registry.prompts, *shared, page_of_prompts)
        self._resources = Pages(registry.resources, *shared, page_of_resources)
        self._templates = Pages(registry.templates, *shared, page_of_templates)

    @property
    def routes(self) -> Mapping[str, Route]:
        return {
            "tools/list": self._tools.serve,
            "tools/call": self._call_tool,
            "prompts/list": self._prompts.serve,
            "prompts/get": self._get_prompt,
            "resources/list": self._resources.serve,
            "resources/templates/list": self._templates.serve,
            "resources/read": self._read_resource,
            "completion/complete": self._complete,
        }

    @property
    def request_checks(self) -> Mapping[str, RequestCheck]:
        return {"tools/call": self._compare_headers}

    @cached_property
    def _cursors(self) -> Cursors:
        return Cursors(self._keys or KeyRing.from_environment() or KeyRing.random(), self._identity.name)

    def _hidden(self, facts: RequestFacts) -> frozenset[Tool]:
        """The tools that this client could not call (row 30), where a listing belongs to its session."""
        if not facts.codec.revision.hides_gated:
            return frozenset()
        return frozenset(tool for tool in self._registry.tools if not tool.open_to(facts.client_capabilities))

    def _compare_headers(self, facts: RequestFacts, params: Model) -> None:
        """Refuse a call whose headers say something else than its arguments (M-HTTP-4s); a pipe has no headers."""
        assert isinstance(params, CallToolRequestParams)
        tool = self._registry.tools.get(params.name)
        if tool is not None and tool.mirrored and facts.headers and facts.codec.revision.mirrors:
            tool.mirrored.check(facts.headers, params.arguments or {})

    def _call_tool(self, facts: RequestFacts, params: Model) -> Model | Plan:
        assert isinstance(params, CallToolRequestParams)
        tool = self._registry.tools.get(params.name)
        if tool is None:
            raise RemoteProtocolError(f"Unknown tool: {params.name[:128]}", code=INVALID_PARAMS)
        return tool.plan(facts, params.arguments or {})

    def _get_prompt(self, _facts: RequestFacts, params: Model) -> Plan:
        assert isinstance(params, GetPromptRequestParams)
        prompt = self._registry.prompts.get(params.name)
        if prompt is None:
            raise RemoteProtocolError(f"Unknown prompt: {params.name[:128]}", code=INVALID_PARAMS)
        return prompt.plan(params.arguments or {})

    def _read_resource(self, _facts: RequestFacts, params: Model) -> Plan:
        """A resource of its own goes before one of a template, and of templates the first that fits."""
        assert isinstance(params, ReadResourceRequestParams)
        check_uri(params.uri)
        resource = self._registry.resources.get(params.uri)
        if resource is not None:
            return resource.plan()
        for template in self._registry.templates:
            plan = template.plan(params.uri)
            if plan is not None:
                return plan
        raise ResourceNotFound(params.uri)

    def _complete(self, _facts: RequestFacts, params: Model) -> Model | Plan:
        assert isinstance(params, CompleteRequestParams)
        if not self._registry.completes:
            raise RemoteProtocolError("this server completes nothing", code=METHOD_NOT_FOUND)
        target, known = self._referred(params)
        name = params.argument.name
        if name not in known:
            raise RemoteProtocolError(f"{target} has no argument {name[:128]!r}", code=INVALID_PARAMS)
        completer = self._registry.completers.get((target, name))
        if completer is None:
            return NOTHING
        settled = params.context.arguments if params.context is not None else None
        return completer.plan(target, params.argument.value, settled or {})

    def _referred(self, params: CompleteRequestParams) -> tuple[str, frozenset[str]]:
        """What is to be completed: the name of the prompt or the text of the template, and its arguments.

        Raises:
            RemoteProtocolError: -32602, there is no such thing; the message names it.
        """
        reference = params.ref
        if isinstance(reference, PromptReference):
            prompt = self._registry.prompts.get(reference.name)
            if prompt is None:
                raise RemoteProtocolError(f"Unknown prompt: {reference.name[:128]}", code=INVALID_PARAMS)
            return prompt.name, frozenset(argument.name for argument in prompt.model.arguments or ())
        for template in self._registry.templates:
            text = template.model.uri_template
            if reference.uri == text or template.pattern.match(reference.uri) is not None:
                return text, frozenset(template.pattern.variables)
        if reference.uri in self._registry.resources:
            return reference.uri, frozenset()
        raise RemoteProtocolError(f"Unknown resource template: {reference.uri[:128]}", code=INVALID_PARAMS)
