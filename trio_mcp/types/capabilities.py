"""The capabilities that clients and servers declare."""

from collections.abc import Iterable
from typing import Annotated, cast

from .base import MAX_RECEIVED, JsonObject, JsonValue, Model, at_most
from .messages import RequestParams, Result
from .offered import Icon


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
    """`tasks` exists in 2025-11-25 only, `extensions` since 2026-07-28."""

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
    """Return whether the capability `gate` is declared, such as "tools", "resources.listChanged" or "elicitation.form".

    Also the last of several objects in one another ("tasks.requests.tools.call"), or an extension ("extensions." and its name).
    """
    name, _, detail = gate.partition(".")
    capability = getattr(capabilities, name, None)
    if capability is None or not detail:
        return capability is not None
    # An empty object means forms: clients of 2025-06-18 had nothing else, and sent it (L-ELI-1c).
    if isinstance(capability, ElicitationCapability) and detail == "form":
        return capability.form is not None or capability.url is None
    found: JsonValue = capability.wire() if isinstance(capability, Model) else capability
    for step in _steps(name, detail):
        found = found.get(step) if isinstance(found, dict) else None
    # A flag may be false, and an object such as `tasks.list` may be empty: the one declares nothing, the other does.
    return found not in (None, False)


def lacks(declared: ClientCapabilities, gates: Iterable[str]) -> JsonObject | None:
    """Return the capabilities that are needed and were not declared, as they would be declared; None if nothing is missing."""
    missing: JsonObject = {}
    for gate in gates:
        if not declares(declared, gate):
            name, _, detail = gate.partition(".")
            inner = missing
            for step in (name, *(_steps(name, detail) if detail else ())):
                inner = cast("JsonObject", inner.setdefault(step, {}))
    return missing or None


def _steps(name: str, detail: str) -> list[str]:
    """Return the members that lead to a detail. The name of an extension is one, though it has dots."""
    return [detail] if name == "extensions" else detail.split(".")


# How client and server learn about each other: `initialize` up to 2025-11-25, `server/discover` since 2026-07-28.

# The name and version of a client or a server.


class Implementation(Model):
    """The name and version of a program, for display and logs only: no behaviour may depend on it."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    icons: Annotated[list[Icon] | None, at_most(MAX_RECEIVED)] = None
    website_url: str | None = None


class InitializeRequestParams(RequestParams):
    """The params of `initialize`, with which a client opens a legacy session."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result):
    """The result of `initialize`, with the version that the server has chosen."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None
