"""The capabilities that clients and servers declare."""

from collections.abc import Iterable

from .base import JsonObject, Model


class _ListCapability(Model):
    list_changed: bool | None = None


class RootsCapability(_ListCapability):
    """The client can list roots. `list_changed` exists up to 2025-11-25."""


class SamplingCapability(Model):
    """The client can sample a model. `tools` and `context` exist since 2025-11-25."""

    tools: JsonObject | None = None
    context: JsonObject | None = None


class ElicitationCapability(Model):
    """The client can ask its user. Without `form` and `url` it can show forms only."""

    form: JsonObject | None = None
    url: JsonObject | None = None


class _Capabilities(Model):
    experimental: dict[str, JsonObject] | None = None
    extensions: dict[str, JsonObject] | None = None
    tasks: JsonObject | None = None


class ClientCapabilities(_Capabilities):
    """The capabilities of a client."""

    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None


class PromptsCapability(_ListCapability):
    """The server has prompts."""


class ResourcesCapability(_ListCapability):
    """The server has resources."""

    subscribe: bool | None = None


class ToolsCapability(_ListCapability):
    """The server has tools."""


class ServerCapabilities(_Capabilities):
    """The capabilities of a server."""

    logging: JsonObject | None = None
    completions: JsonObject | None = None
    prompts: PromptsCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ToolsCapability | None = None


def declares(capabilities: ClientCapabilities | ServerCapabilities, gate: str) -> bool:
    """Return whether the capability `gate` is declared, such as "tools", "resources.listChanged" or "elicitation.form"."""
    name, _, detail = gate.partition(".")
    capability = getattr(capabilities, name, None)
    if capability is None or not detail:
        return capability is not None
    # An empty object means forms: clients of 2025-06-18 had nothing else, and sent it (L-ELI-1c).
    if isinstance(capability, ElicitationCapability) and detail == "form":
        return capability.form is not None or capability.url is None
    members = capability.wire() if isinstance(capability, Model) else capability
    # A flag may be false, and an object such as `tasks.list` may be empty: the one declares nothing, the other does.
    return members.get(detail) not in (None, False)


def lacks(declared: ClientCapabilities, gates: Iterable[str]) -> JsonObject | None:
    """Return the capabilities that are needed and were not declared, as they would be declared; None if nothing is missing."""
    missing: JsonObject = {}
    for gate in gates:
        if not declares(declared, gate):
            name, _, detail = gate.partition(".")
            inner = missing.setdefault(name, {})
            assert isinstance(inner, dict)
            if detail:
                inner[detail] = {}
    return missing or None
