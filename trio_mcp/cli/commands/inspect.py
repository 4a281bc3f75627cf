"""`trio-mcp inspect`: everything that a server offers, what is wrong with it, and about how many tokens it costs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from ...client import Client
from ...session.options import CHARACTERS_PER_TOKEN
from ...types import Prompt, Resource, ResourceTemplate, Tool
from ..arguments import json_option
from ..command import REFUSED, Status, command
from ..connecting import Answering, Connecting, connects, use_server
from ..diagnosis import Finding, find_problems, of_costs, of_dropped
from ..terminal.output import show_json, show_lines, show_table
from ..terminal.prompting import Prompting
from .list import show_offers, usage

EXAMPLES = """\
examples:
  trio-mcp inspect travel.py
  trio-mcp inspect app.py:make_server --json > offers.json
  trio-mcp inspect http://127.0.0.1:8000/mcp --mode legacy
  trio-mcp inspect cursor:shop

The tokens are an estimate, one for each four characters of what a host passes to its model: the name, the description and the
input schema of each tool, and the instructions. A model counts in its own way. Errors make the status 1; warnings and advice do
not.
"""

NO_VERSION: Final = "0"
"""What a `Server` without a version sends as its version, which the protocol requires."""

EVERYTHING = Answering(samples=("",), roots=(".",))
"""Capabilities that the client declares, so that no tool that needs one is hidden."""


@dataclass(frozen=True)
class Report:
    """What a server offers.

    Attributes:
        revision: the revision that was spoken.
        tokens: the estimated tokens by the name of a tool.
    """

    name: str
    version: str
    revision: str
    instructions: str | None
    capabilities: dict[str, object]
    tools: Sequence[Tool]
    resources: Sequence[Resource]
    templates: Sequence[ResourceTemplate]
    prompts: Sequence[Prompt]
    tokens: dict[str, int]
    findings: Sequence[Finding]

    @property
    def total(self) -> int:
        """The estimated tokens of all that is in a model's context before the first call."""
        return sum(self.tokens.values()) + estimate(self.instructions or "")


@command("inspect", EXAMPLES, {Status.TOOL_ERROR: "it found an error", **REFUSED})
@connects
@json_option
def command_line(connecting: Connecting, as_json: bool) -> int:
    """Show everything a server offers with its schemas, what is wrong with it, and an estimate of what it costs in tokens.

    TARGET is a Python file or module (app.py, app.py:name, shop.server), a URL, a command in quotes, or a server of a file
    (mcp.json:name).
    """

    async def use(client: Client, _prompting: Prompting) -> int:
        report = await read_report(client)
        if as_json:
            show_json(as_object(report))
        else:
            show_report(report)
        return Status.TOOL_ERROR if any(each.severity == "error" for each in report.findings) else Status.OK

    return use_server(connecting, EVERYTHING, use)


async def read_report(client: Client) -> Report:
    declared, info = client.server_capabilities, client.server_info
    tools = await client.list_tools() if declared.tools else []
    resources = await client.list_resources() if declared.resources else []
    templates = await client.list_resource_templates() if declared.resources else []
    prompts = await client.list_prompts() if declared.prompts else []
    tokens = {tool.name: tokens_of(tool) for tool in tools}
    problems = find_problems(tools, resources, templates, prompts, client.instructions)
    return Report(
        info.name if info else "unknown",
        info.version if info else "",
        client.protocol_version,
        client.instructions,
        dict(declared.wire()),
        tools,
        resources,
        templates,
        prompts,
        tokens,
        [*(of_dropped(each) for each in client.dropped), *problems, *of_costs(tokens)],
    )


def tokens_of(tool: Tool) -> int:
    """Return about how many tokens a tool costs in the context of a model."""
    # Hosts pass on these three alone: no API of a model takes an output schema or annotations.
    passed = {"name": tool.name, "description": tool.description or "", "input_schema": tool.input_schema}
    return estimate(json.dumps(passed, ensure_ascii=False, separators=(",", ":")))


def estimate(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def as_object(report: Report) -> dict[str, object]:
    return {
        "server": {"name": report.name, "version": report.version, "instructions": report.instructions},
        "protocolVersion": report.revision,
        "capabilities": report.capabilities,
        "tools": [{**tool.wire(), "estimatedTokens": report.tokens[tool.name]} for tool in report.tools],
        "resources": [each.wire() for each in report.resources],
        "resourceTemplates": [each.wire() for each in report.templates],
        "prompts": [each.wire() for each in report.prompts],
        "findings": [asdict(each) for each in report.findings],
        "estimatedTokens": report.total,
    }


def show_report(report: Report) -> None:
    version = "without a version" if report.version == NO_VERSION else report.version
    show_lines([f"{report.name} {version} (protocol {report.revision})"])
    if report.instructions:
        show_lines([report.instructions])
    tools = [(f"{usage(tool)} (about {report.tokens[tool.name]} tokens)", details(tool)) for tool in report.tools]
    for kind, items in (
        ("tools", tools),
        ("resources", [(usage(each), each.description or "") for each in report.resources]),
        ("resource templates", [(usage(each), each.description or "") for each in report.templates]),
        ("prompts", [(usage(each), prompt_details(each)) for each in report.prompts]),
    ):
        if items:
            show_offers(kind, items)
    if report.findings:
        show_table(("severity", "where", "what"), [(each.severity, each.where, each.what) for each in report.findings])
    else:
        show_lines(["nothing is wrong with it"])
    show_lines([f"estimate: about {report.total} tokens in the context of a model"])


def details(tool: Tool) -> str:
    schemas = {"input": tool.input_schema, "output": tool.output_schema}
    texts = [
        f"{name} schema: {json.dumps(schema, indent=2, ensure_ascii=False)}"
        for name, schema in schemas.items()
        if schema
    ]
    return "\n".join([*([tool.description] if tool.description else []), *texts])


def prompt_details(prompt: Prompt) -> str:
    arguments = [f"{each.name}: {each.description}" for each in prompt.arguments or () if each.description]
    return "\n".join([*([prompt.description] if prompt.description else []), *arguments])
