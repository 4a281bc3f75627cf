"""What `trio-mcp inspect` finds wrong with the offers of a server, and what it estimates."""

from __future__ import annotations

from typing import Any

import pytest

from trio_mcp.cli.commands.inspect import estimate, tokens_of
from trio_mcp.cli.diagnosis import MAX_TEXT, Finding, find_problems, of_costs
from trio_mcp.types import JsonObject, Prompt, PromptArgument, Resource, ResourceTemplate, Tool, ToolAnnotations


def tool(name: str = "search", **members: Any) -> Tool:
    given = {
        "description": "Search.",
        "input_schema": {"type": "object"},
        "annotations": ToolAnnotations(read_only_hint=True),
    }
    return Tool(name=name, **{**given, **members})


def found(**offers: Any) -> list[Finding]:
    given: dict[str, Any] = {"tools": [], "resources": [], "templates": [], "prompts": [], "instructions": None}
    return find_problems(**{**given, **offers})


def test_nothing_is_wrong_with_a_tool_that_says_what_it_should() -> None:
    schema: JsonObject = {"type": "object", "properties": {"query": {"type": "string", "description": "What for."}}}
    assert found(tools=[tool(input_schema=schema, output_schema={"type": "object"})]) == []


@pytest.mark.parametrize(
    ("severity", "wrong", "said"),
    [
        ("error", tool(input_schema={"type": "objekt"}), "inputSchema"),
        ("error", tool(input_schema={"type": "object", "$ref": "https://x.example/schema"}), "inputSchema"),
        ("error", tool(input_schema={"type": "array"}), "object"),
        ("error", tool(output_schema={"properties": 3}), "outputSchema"),
        ("warning", tool("Käse"), "names"),
        ("warning", tool("a.b"), "names"),
        ("warning", tool("x" * 65), "names"),
        ("warning", tool(description=" "), "no description"),
        ("warning", tool(description="x" * (MAX_TEXT + 1)), str(MAX_TEXT)),
        ("warning", tool(input_schema={"type": "object", "anyOf": [{"type": "object"}]}), "anyOf"),
        ("advice", tool(annotations=None), "readOnlyHint"),
        ("advice", tool(input_schema={"type": "object", "properties": {"q": {"type": "string"}}}), "q"),
    ],
)
def test_what_is_wrong_with_a_tool_is_found(severity: str, wrong: Tool, said: str) -> None:
    (finding,) = found(tools=[wrong])
    assert (finding.severity, finding.where) == (severity, f"tool {wrong.name}")
    assert said in finding.what


ROOM: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Where."}, "beds": {"type": "integer"}},
}


def test_the_members_of_an_argument_are_looked_at_in_place_of_a_description() -> None:
    (finding,) = found(tools=[tool(input_schema={"type": "object", "properties": {"room": ROOM}})])
    assert finding.what.endswith(": room.beds")
    described: JsonObject = {**ROOM, "description": "A room."}
    assert found(tools=[tool(input_schema={"type": "object", "properties": {"room": described}})]) == []


@pytest.mark.parametrize(
    "text", ["query: What.\n    limit: How many.", "query (str): What.\n    limit (int, optional): N."]
)
def test_the_arguments_of_a_docstring_are_described(text: str) -> None:
    schema: JsonObject = {"type": "object", "properties": {"query": {}, "limit": {}, "page": {}}}
    (finding,) = found(tools=[tool(description=f"Search.\n\nArgs:\n    {text}", input_schema=schema)])
    assert finding.what.endswith(": page")


@pytest.mark.parametrize("destructive", [True, False])
def test_a_tool_that_says_whether_it_destroys_need_not_say_whether_it_only_reads(destructive: bool) -> None:
    assert found(tools=[tool(annotations=ToolAnnotations(destructive_hint=destructive))]) == []


def test_names_that_occur_twice_are_errors_and_those_that_nearly_do_are_warnings() -> None:
    severities = [each.severity for each in found(tools=[tool("a"), tool("b"), tool("b"), tool("A")])]
    assert severities == ["error", "warning", "warning"]


def test_resources_templates_and_prompts_are_looked_at_too() -> None:
    findings = found(
        resources=[Resource(uri="no-scheme", name="r")],
        templates=[ResourceTemplate(uri_template="x://{a", name="t", mime_type="text/plain", description="T.")],
        prompts=[Prompt(name="p", arguments=[PromptArgument(name="topic")])],
        instructions="x" * (MAX_TEXT + 1),
    )
    assert [(each.severity, each.where) for each in findings] == [
        ("error", "resource no-scheme"),
        ("error", "template x://{a"),
        ("warning", "prompt p"),
        ("warning", "instructions"),
        ("advice", "resource no-scheme"),
        ("advice", "resource no-scheme"),
        ("advice", "prompt p"),
    ]


def test_a_server_that_offers_nothing_is_a_warning() -> None:
    assert [each.severity for each in found()] == ["warning"]


def test_the_tokens_of_a_tool_grow_with_what_its_model_reads_and_with_nothing_else() -> None:
    bare = tokens_of(tool())
    assert tokens_of(tool(description="Search." + "x" * 400)) == bare + 100
    assert tokens_of(tool(output_schema={"type": "object", "description": "x" * 400})) == bare
    assert (estimate(""), estimate("x"), estimate("x" * 8)) == (0, 1, 2)


def test_many_tokens_are_a_warning_that_names_the_most_expensive_tools() -> None:
    assert of_costs({"a": 5_000, "b": 5_000}) == []
    (finding,) = of_costs({"a": 1, "large": 9_000, "b": 2, "c": 1_500})
    assert "large, c, b" in finding.what
