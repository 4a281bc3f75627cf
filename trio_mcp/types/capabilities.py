"""What a client or a server says it can do."""

from collections.abc import Iterable

from .base import JsonObject, Model


class RootsCapability(Model):
    """The client can list roots. `list_changed` ended with 2025-11-25."""

    list_changed: bool | None = None


class SamplingCapability(Model):
    """The client can sample a model; `tools` and `context` since 2025-11-25."""

    tools: JsonObject | None = None
    context: JsonObject | None = None


class ElicitationCapability(Model):
    """The client can ask its user. Neither `form` nor `url` means: forms only."""

    form: JsonObject | None = None
    url: JsonObject | None = None


class ClientCapabilities(Model):
    """What a client can do."""

    experimental: dict[str, JsonObject] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: JsonObject | None = None
    extensions: dict[str, JsonObject] | None = None


class PromptsCapability(Model):
    """The server has prompts."""

    list_changed: bool | None = None


class ResourcesCapability(Model):
    """The server has resources."""

    subscribe: bool | None = None
    list_changed: bool | None = None


class ToolsCapability(Model):
    """The server has tools."""

    list_changed: bool | None = None


class ServerCapabilities(Model):
    """What a server can do."""

    experimental: dict[str, JsonObject] | None = None
    logging: JsonObject | None = None
    completions: JsonObject | None = None
    prompts: PromptsCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ToolsCapability | None = None
    tasks: JsonObject | None = None
    extensions: dict[str, JsonObject] | None = None


def declares(capabilities: ClientCapabilities | ServerCapabilities, gate: str) -> bool:
    """Whether `capabilities` open a gate such as "tools", "resources.listChanged" or "elicitation.form"."""
    name, _, detail = gate.partition(".")
    capability = getattr(capabilities, name, None)
    if capability is None or not detail:
        return capability is not None
    if isinstance(capability, ElicitationCapability) and detail == "form":
        return capability.form is not None or capability.url is None  # an empty object means forms (L-ELI-1c)
    members = capability.wire() if isinstance(capability, Model) else capability
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
