"""What is wrong with the offers of a server, or makes them hard to use for a model or a host."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from ..base.named_tuples import NamedTuple
from ..base.values import shown_url
from ..errors import ConfigurationError
from ..mcp_json import CommandServer, FoundServer
from ..protocol.codec.models import Dropped
from ..protocol.revisions import MODERN, SUPPORTED
from ..protocol.schema.json_schema import Schema
from ..protocol.sealing.request_state import KeyRing
from ..protocol.uri.matching import UriTemplate
from ..types import JsonObject, Prompt, Resource, ResourceTemplate, Tool
from .arguments import properties
from .command import CommandError
from .hosts import HOSTS, Host, read_entries

Severity: TypeAlias = Literal["error", "warning", "advice"]

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names of tools that the APIs of models take."""
MAX_TEXT: Final = 2048
"""Characters of a description or of instructions after which a host may cut them, as Claude Code does."""
MANY_TOKENS: Final = 10_000
"""Estimated tokens of all tools that are worth a word: a model pays them in every conversation."""
ARGUMENT: Final = re.compile(r"^[ \t]*\*{0,2}(\w+)[ \t]*(?:\([^)\n]*\))?:", re.MULTILINE)
"""An argument in the section of a docstring."""
COMBINED: Final = ("anyOf", "oneOf", "allOf")


@dataclass(frozen=True)
class Finding:
    """Something that an author may want to change.

    Attributes:
        severity: "error" for what breaks a rule or cannot be used, "warning" for what some hosts cannot use, "advice" for what
            a model would use better.
        where: the offer, such as `tool search`.
    """

    severity: Severity
    where: str
    what: str


def find_problems(
    tools: Sequence[Tool],
    resources: Sequence[Resource],
    templates: Sequence[ResourceTemplate],
    prompts: Sequence[Prompt],
    instructions: str | None,
) -> list[Finding]:
    """Return what is wrong with what a server offers, the errors first."""
    found = [
        *repeats("tool", [each.name for each in tools]),
        *repeats("prompt", [each.name for each in prompts]),
        *repeats("resource", [each.uri for each in resources]),
        *(finding for each in tools for finding in of_tool(each)),
        *(finding for each in resources for finding in of_resource(each)),
        *(finding for each in templates for finding in of_template(each)),
        *(finding for each in prompts for finding in of_prompt(each)),
    ]
    if not (tools or resources or templates or prompts):
        found.append(Finding("warning", "server", "it offers nothing to this client"))
    if instructions is not None and len(instructions) > MAX_TEXT:
        found.append(too_long("instructions", instructions))
    return sorted(found, key=lambda each: ("error", "warning", "advice").index(each.severity))


def repeats(kind: str, names: Sequence[str]) -> Iterator[Finding]:
    for name, number in Counter(names).items():
        if number > 1:
            yield Finding("error", f"{kind} {name}", f"the name occurs {number} times")
    folded = Counter(name.casefold() for name in set(names))
    for name in sorted(set(names)):
        if kind != "resource" and folded[name.casefold()] > 1:
            yield Finding("warning", f"{kind} {name}", "another one differs only in upper and lower case")


def of_tool(tool: Tool) -> Iterator[Finding]:
    where = f"tool {tool.name}"
    if not NAME.fullmatch(tool.name):
        yield Finding(
            "warning",
            where,
            "the APIs of models take names of letters, digits, _ and -, 64 at most; hosts rename the others",
        )
    yield from of_description(where, tool.description, "a model reads it to choose a tool")
    yield from of_schema(where, "inputSchema", tool.input_schema)
    if tool.output_schema is not None:
        yield from of_schema(where, "outputSchema", tool.output_schema)
    bare = [*bare_arguments(properties(tool.input_schema), documented(tool.description or ""))]
    if bare:
        yield Finding("advice", where, f"arguments without a description: {', '.join(bare)}")
    hints = tool.annotations
    # A tool that says whether it destroys has said that it does not only read.
    if hints is None or (hints.read_only_hint is None and hints.destructive_hint is None):
        yield Finding(
            "advice", where, "annotations do not say whether it only reads (readOnlyHint): hosts ask before each call"
        )


def documented(description: str) -> frozenset[str]:
    """Return the arguments that a docstring describes in a section `Args:`, as Google's style has it."""
    _, found, section = description.partition("Args:\n")
    return frozenset(ARGUMENT.findall(section)) if found else frozenset()


def bare_arguments(schemas: Mapping[str, JsonObject], known: AbstractSet[str], path: str = "") -> Iterator[str]:
    """Yield the arguments without a description; of an object without one, its members without one.

    Args:
        known: the names of arguments that are described elsewhere.
    """
    for name, schema in schemas.items():
        if schema.get("description") or name in known:
            continue
        if members := properties(schema):
            yield from bare_arguments(members, frozenset(), f"{path}{name}.")
        else:
            yield f"{path}{name}"


def of_schema(where: str, member: str, schema: JsonObject) -> Iterator[Finding]:
    try:
        Schema.compile(schema, member)
    except ValueError as error:
        yield Finding("error", where, str(error))
        return
    if member == "inputSchema" and schema.get("type") != "object":
        yield Finding("error", where, f"{member}: the type is not object")
    if member == "inputSchema" and (combined := [word for word in COMBINED if word in schema]):
        yield Finding("warning", where, f"{member} has {', '.join(combined)} at its top, which APIs of models reject")


def of_resource(resource: Resource) -> Iterator[Finding]:
    where = f"resource {resource.uri}"
    if not scheme_of(resource.uri):
        yield Finding("error", where, "it is not a URI: there is no scheme")
    yield from of_contents(where, resource)


def of_template(template: ResourceTemplate) -> Iterator[Finding]:
    where = f"template {template.uri_template}"
    try:
        UriTemplate(template.uri_template)
    except ValueError as error:
        yield Finding("error", where, str(error))
    yield from of_contents(where, template)


def of_contents(where: str, offer: Resource | ResourceTemplate) -> Iterator[Finding]:
    if not offer.mime_type:
        yield Finding("advice", where, "no MIME type: a host cannot tell what it is before it reads it")
    if not offer.description:
        yield Finding("advice", where, "no description")


def of_prompt(prompt: Prompt) -> Iterator[Finding]:
    where = f"prompt {prompt.name}"
    yield from of_description(where, prompt.description, "a user reads it to choose a prompt")
    if bare := [each.name for each in prompt.arguments or () if not each.description]:
        yield Finding("advice", where, f"arguments without a description: {', '.join(bare)}")


def of_description(where: str, text: str | None, why: str) -> Iterator[Finding]:
    if not text or not text.strip():
        yield Finding("warning", where, f"no description: {why}")
    elif len(text) > MAX_TEXT:
        yield too_long(where, text)


def too_long(where: str, text: str) -> Finding:
    return Finding("warning", where, f"{len(text)} characters: hosts cut such a text after {MAX_TEXT}")


def scheme_of(uri: str) -> str:
    try:
        return urlsplit(uri).scheme
    except ValueError:
        return ""


def of_dropped(dropped: Dropped) -> Finding:
    """Return what a client has left out, since it could not be read."""
    return Finding("error", f"{dropped.kind} {dropped.name}", f"it is left out: {dropped.why}")


def of_costs(tokens: Mapping[str, int]) -> list[Finding]:
    """Return what there is to say about the estimated tokens of all tools."""
    total = sum(tokens.values())
    if total <= MANY_TOKENS:
        return []
    largest = sorted(tokens, key=lambda name: tokens[name], reverse=True)[:3]
    what = f"about {total} tokens in every conversation; most of them for {', '.join(largest)}"
    return [Finding("warning", "tools", what)]


# What `trio-mcp doctor` checks on this machine: versions, keys, proxies, certificates, and the files of hosts.

State: TypeAlias = Literal["ok", "note", "warning", "error"]
SHOWN: Final = ("trio", "pydantic", "hypercorn", "httpx2")
"""The packages whose versions are worth a line."""
REQUIREMENT: Final = re.compile(r"[A-Za-z0-9._-]+")
PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
LOCAL: Final = ("127.0.0.1", "localhost", "*")


class Check(NamedTuple):
    """One thing that was looked at."""

    state: State
    subject: str
    text: str


def machine_checks() -> Iterator[Check]:
    """Yield what was found out without a server."""
    yield from version_checks()
    yield key_check()
    yield from proxy_checks()
    yield from certificate_checks()
    for host in HOSTS.values():
        yield from host_checks(host)


def version_checks() -> Iterator[Check]:
    ours = version("trio-mcp")
    yield Check("ok", "versions", f"trio-mcp {ours} on Python {sys.version.split()[0]} ({sys.executable})")
    yield Check(
        "ok", "revisions", f"{MODERN} (modern), {', '.join(each for each in SUPPORTED if each != MODERN)} (legacy)"
    )
    found: list[str] = []
    for requirement in requires("trio-mcp") or ():
        name = REQUIREMENT.match(requirement)
        if name is None or "extra ==" in requirement:
            continue
        try:
            installed = version(name[0])
        except PackageNotFoundError:
            yield Check("error", "versions", f"{name[0]} is not installed: pip install '{requirement}'")
            continue
        if name[0] in SHOWN:
            found.append(f"{name[0]} {installed}")
    yield Check("ok", "versions", ", ".join(found))


def key_check() -> Check:
    try:
        ring = KeyRing.from_environment()
    except ConfigurationError as error:
        return Check("error", "keys", str(error))
    if ring is not None:
        return Check("ok", "keys", "TRIO_MCP_KEYS is set: processes with the same keys can continue a call")
    return Check(
        "note",
        "keys",
        "TRIO_MCP_KEYS is not set: a call that waits for an answer ends with its process, and there is no store",
    )


def proxy_checks() -> Iterator[Check]:
    found = {name: value for name in PROXIES for value in (variable(name),) if value}
    if not found:
        yield Check("ok", "proxies", "none")
        return
    exempt = [part.strip() for part in (variable("NO_PROXY") or "").split(",")]
    for name, value in found.items():
        yield Check("note", "proxies", f"{name} is {shown_url(value)}: requests to URLs go through it")
    if not any(host in exempt for host in LOCAL):
        yield Check(
            "warning",
            "proxies",
            "NO_PROXY does not name 127.0.0.1: requests to servers on this machine go to the proxy, too",
        )


def variable(name: str) -> str | None:
    # Both spellings are in use, and HTTP clients read both.
    return os.environ.get(name) or os.environ.get(name.lower())


def certificate_checks() -> Iterator[Check]:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        path = os.environ.get(name)
        if path and not os.access(path, os.R_OK):
            yield Check("error", "certificates", f"{name} names {path}, which cannot be read: no https:// URL works")
        elif path:
            yield Check("ok", "certificates", f"{name} is {path}")


def host_checks(host: Host) -> Iterator[Check]:
    """Yield what is wrong in the files of a host; nothing for a host that is not there."""
    for location in host.files():
        if not location.path.exists():
            continue
        try:
            entries = read_entries(location.path, host, expand=True)
        except CommandError as error:
            yield Check("error", host.name, str(error))
            continue
        yield Check("ok", host.name, f"{location.path}: {len(entries)} {'server' if len(entries) == 1 else 'servers'}")
        for entry in entries:
            if entry.enabled:
                yield from entry_checks(host, entry)


def entry_checks(host: Host, entry: FoundServer) -> Iterator[Check]:
    if entry.error is not None:
        yield Check("warning", host.name, f"the server {entry.name!r}: {entry.error}")
    if not isinstance(entry.server, CommandServer):
        return
    command, *arguments = entry.server.command
    what = f"the server {entry.name!r}"
    if shutil.which(command) is None:
        yield Check("error", host.name, f"{what}: there is no command {command}")
    elif os.sep not in command:
        note = f"{what}: {command} is looked up in the PATH of the host, which may differ from that of this shell"
        yield Check("note", host.name, note)
    missing = [
        word for word in arguments if Path(word).is_absolute() and word.endswith(".py") and not Path(word).exists()
    ]
    for word in missing:
        yield Check("error", host.name, f"{what}: there is no file {word}")
