"""Completion: suggested values for an argument of a prompt, or a variable of a resource template, while a user types it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ... import server, types
from ...base.named_tuples import NamedTuple
from ...errors import RemoteProtocolError
from ...protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from ...runtime import ThreadLimiter
from ...session import Plan, RequestFacts
from ...types import Model
from ..catalog import Catalog
from ..handler import Function, Handler, make_handler
from ..values.callables import callable_name
from ..values.return_errors import ReturnError, value_label
from ..values.signature import parameters_of

if TYPE_CHECKING:
    from ...types import CompleteResult, PromptReference, ResourceTemplateReference
    from ..mounts import MountPoint, Mounts
    from .prompts import Prompt
    from .resources import Resource, Template

MAX_VALUES = 100
"""Values in one result (L-CMP-1s)."""

PARAMETERS = ("value", "arguments")

NO_SUGGESTIONS = (None, type(None), str, bytes, int, float, bool, dict)


class Completer(NamedTuple):
    """A registered completion function, and which of the parameters it takes."""

    handler: Handler
    takes: frozenset[str]

    def plan(self, target: str, value: str, arguments: Mapping[str, str]) -> Plan:
        """Return how to complete one value; `arguments` are those that the user has entered already."""
        given = {"value": value, "arguments": arguments}
        values: dict[str, object] = {name: given[name] for name in self.takes}
        return Plan(partial(self.handler.run, values, complete_result), target)


class Target(NamedTuple):
    """The prompt or template that a peer references: its name or its text, its arguments, and the servers it comes through."""

    target: str
    arguments: frozenset[str]
    mounts: Mounts


class Completions:
    """The completion functions of a server, by prompt or template and argument.

    Attributes:
        mounted: those of the servers that are mounted in this one.
    """

    def __init__(self, prompts: Catalog[Prompt], resources: Catalog[Resource], templates: Catalog[Template]) -> None:
        self._prompts = prompts
        self._resources = resources
        self._templates = templates
        self._completers: dict[tuple[str, str], Completer] = {}
        self._was_filled = False
        self.mounted: dict[MountPoint, Completions] = {}

    @property
    def was_ever_filled(self) -> bool:
        """Whether a function was added once, here or at a mounted server; see `Catalog`."""
        return self._was_filled or any(each.was_ever_filled for each in tuple(self.mounted.values()))

    def add(self, prompt: str | None, resource: str | None, argument: str, completer: Completer) -> None:
        """Add a function for an argument of a prompt, or for a variable of a resource template.

        Raises:
            LookupError: there is no such prompt, template or argument.
            ValueError: the argument has one already.
        """
        target, names = self._named(prompt, resource)
        if argument not in names:
            raise LookupError(f"{target} has no argument {argument!r}")
        if (target, argument) in self._completers:
            raise ValueError(f"the argument {argument!r} of {target} has a completion already")
        if not self._own(prompt, resource):
            raise LookupError(f"{target} is of a mounted server: register its completions there")
        self._completers[target, argument] = completer
        self._was_filled = True

    def remove(self, target: str) -> None:
        """Remove the functions for a prompt or a template that was removed."""
        # Else another one that is added under the same name would get completions that its author did not write.
        for key in [key for key in tuple(self._completers) if key[0] == target]:
            self._completers.pop(key, None)

    def complete(self, facts: RequestFacts, params: Model) -> Model | Plan:
        """Serve `completion/complete`.

        Raises:
            RemoteProtocolError: -32601, the server has no completions; -32602, there is no such prompt, template or argument.
        """
        assert isinstance(params, types.CompleteRequestParams)
        if not self.was_ever_filled:
            raise RemoteProtocolError("this server has no completions", code=METHOD_NOT_FOUND)
        found = self._referenced(params.ref, facts)
        name = params.argument.name
        if name not in found.arguments:
            raise RemoteProtocolError(f"{found.target} has no argument {name[:128]!r}", code=INVALID_PARAMS)
        completer = self._completer(params.ref, found, name)
        if completer is None:
            return types.CompleteResult(completion=types.Completion(values=[]))
        entered = params.context.arguments if params.context is not None else None
        plan = completer.plan(found.target, params.argument.value, entered or {})
        if not found.mounts:
            return plan
        return plan._replace(run=server.mounts.mounted_body(found.mounts, None, found.target, {}, plan.run))

    def own_completer(self, target: str, argument: str) -> Completer | None:
        """Return the function of this server for an argument of its prompt or template; None if it has none."""
        return self._completers.get((target, argument))

    def _completer(
        self, ref: PromptReference | ResourceTemplateReference, found: Target, argument: str
    ) -> Completer | None:
        """Return the function for an argument, of the server that registered what has the argument."""
        completions, target = self, found.target
        for mount in reversed(found.mounts):
            completions = completions.mounted[mount]
            target = server.mounts.inner(
                mount, "prompt" if isinstance(ref, types.PromptReference) else "resource", target
            )
        return completions.own_completer(target, argument)

    def _own(self, prompt: str | None, resource: str | None) -> bool:
        """Return whether an existing prompt or template is of this server itself."""
        if prompt is not None and (found := self._prompts.by_key.get(prompt)) is not None:
            return not found.mounts
        return resource is None or (template := self._templates.find(resource)) is None or not template.mounts

    def _named(self, prompt: str | None, resource: str | None) -> tuple[str, frozenset[str]]:
        """Return the prompt or template that an author names, and its arguments."""
        if prompt is not None and (found := self._prompts.by_key.get(prompt)) is not None:
            return prompt, found.argument_names
        if resource is not None and (template := self._templates.find(resource)) is not None:
            return resource, frozenset(template.pattern.variables)
        what = f"resource template {resource!r}" if prompt is None else f"prompt {prompt!r}"
        raise LookupError(f"there is no {what}: register it before its completions")

    def _referenced(self, reference: PromptReference | ResourceTemplateReference, facts: RequestFacts) -> Target:
        """Return the prompt or template that a peer references.

        Raises:
            RemoteProtocolError: -32602, the caller sees no such thing; the message names it. -32600, it lacks the scopes.
        """
        if isinstance(reference, types.PromptReference):
            prompt = server.data.prompts.find_prompt(self._prompts, reference.name, facts)
            return Target(prompt.name, prompt.argument_names, prompt.mounts)
        # Some clients send the template, others a URI that is expanded so far.
        template = self._templates.find(reference.uri)
        if (
            template is None
            and (found := server.data.resources.matching_template(self._templates, reference.uri, facts.turn))
            is not None
        ):
            template, _ = found
        referenced = template or self._resources.find(reference.uri)
        text = f"Unknown resource template: {reference.uri[:128]}"
        unknown = partial(RemoteProtocolError, text, code=INVALID_PARAMS)
        if referenced is None:
            raise unknown()
        if referenced.access is not None:
            referenced.access.check(facts.caller, f"the resource {reference.uri[:128]}", unknown)
        if template is None:
            return Target(reference.uri, frozenset(), ())
        return Target(template.model.uri_template, frozenset(template.pattern.variables), template.mounts)


def make_completer(function: Function, threads: ThreadLimiter) -> Completer:
    """Return a completer that runs a function.

    Raises:
        TypeError: it has other parameters than `value`, `arguments` and a context, or its return annotation is not a list of
            suggestions.
    """
    parameters, context, returns = parameters_of(function)
    # Checked in advance, because a string is iterable too: "python" would become six suggestions.
    if returns in NO_SUGGESTIONS:
        raise TypeError(f"{callable_name(function)}: a completion returns list[str] or a Completion, not {returns}")
    names = frozenset(parameter.name for parameter in parameters)
    if "value" not in names or not names.issubset(PARAMETERS):
        raise TypeError(f"{callable_name(function)}: a completion takes `value`, optionally `arguments` and a Context")
    return Completer(make_handler(function, context, threads), names)


def suggestions(value: object) -> list[str]:
    """Return the value of a completion function if it is a list of strings or another iterable of them.

    Raises:
        ReturnError: it is something else, such as one string.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ReturnError(f"a completion returns a list of strings, not {value_label(value)}")
    found = list(value)
    for suggestion in found:
        if not isinstance(suggestion, str):
            raise ReturnError(f"a completion returns a list of strings, not one with {value_label(suggestion)}")
    return found


def complete_result(value: object) -> CompleteResult:
    """Return the value of a completion function as a result, cut to `MAX_VALUES`; `total` counts the rest (L-CMP-1s)."""
    if isinstance(value, types.Completion):
        found, total, more = value.values, value.total, value.has_more
    else:
        found = suggestions(value)
        total, more = len(found), None
    more = len(found) > MAX_VALUES or bool(more)
    return types.CompleteResult(completion=types.Completion(values=found[:MAX_VALUES], total=total, has_more=more))
