"""What cannot be offered is refused where it is written, in words that say what to write instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from naming import naming
from pydantic import BeforeValidator
from serving import ROOT

from trio_mcp import Context, Elicit, Server, ServiceOptions
from trio_mcp.server import PromptKeywords, ResourceKeywords, ToolKeywords


def function() -> str:
    return ""


def tool(**options: Any) -> None:
    Server("wrong").add_tool(function, **options)


def prompt(**options: Any) -> None:
    Server("wrong").add_prompt(function, **options)


def resource(**options: Any) -> None:
    Server("wrong").add_resource("a://b", function, **options)


def server(**options: Any) -> None:
    Server("wrong", **options)


COMMON: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"timeout": "30"}, TypeError),
    ({"timeout": 0}, ValueError),
    ({"name": 3}, TypeError),
    ({"resume": "reply"}, ValueError),
    ({"elicits": "seat"}, TypeError),
]
WRONG = [
    *((offer, options, kind) for offer in (tool, prompt, resource) for options, kind in COMMON),
    (resource, {"ttl": -1}, ValueError),
    (resource, {"ttl": "60"}, TypeError),
    (resource, {"ttl": float("inf")}, ValueError),
    (resource, {"cache_scope": "all"}, ValueError),
    (server, {"list_scope": "everyone"}, ValueError),
    (server, {"list_ttl": "60"}, TypeError),
    (server, {"list_ttl": -1}, ValueError),
    (server, {"list_ttl": float("nan")}, ValueError),
    (server, {"options": {"max_seconds": 3}}, TypeError),
    (server, {"page_size": "9"}, TypeError),
    (server, {"page_size": 0}, ValueError),
    (tool, {"requires": "sampling"}, TypeError),
    (tool, {"max_depth": "3"}, TypeError),
    (tool, {"token_budget": -1}, ValueError),
    (tool, {"output_schema": 5}, TypeError),
    (ServiceOptions, {"max_seconds": "3"}, TypeError),
    (ServiceOptions, {"watchdog": None}, TypeError),
    (ServiceOptions, {"settle": -1}, ValueError),
    (ServiceOptions, {"outcome_grace": float("nan")}, ValueError),
    (ServiceOptions, {"outbox": 0}, ValueError),
    (ServiceOptions, {"max_depth": -1}, ValueError),
    (ServiceOptions, {"max_state": 1.5}, TypeError),
    (ServiceOptions, {"watched": True}, TypeError),
    (ServiceOptions, {"actors": 100}, TypeError),
    (ServiceOptions, {"estimate_tokens": 3}, TypeError),
]


@pytest.mark.parametrize(("offer", "options", "kind"), WRONG)
def test_an_option_is_rejected_by_name_and_value(
    offer: Callable[..., None], options: dict[str, Any], kind: type[Exception]
) -> None:
    ((name, value),) = options.items()
    with pytest.raises(kind, match=naming(name, repr(value))):
        offer(**options)


@pytest.mark.parametrize("offer", [tool, prompt, resource])
def test_a_question_that_is_none_is_named_with_how_to_write_one(offer: Callable[..., None]) -> None:
    with pytest.raises(TypeError, match=naming("elicits", "'seat'", "Elicit('seat', Seat)")):
        offer(elicits=["seat"])


@pytest.mark.parametrize(
    ("offer", "option", "meant"),
    [(tool, "titel", "title"), (prompt, "titel", "title"), (resource, "mime", "mime_type")],
)
def test_an_unknown_option_is_rejected_with_the_nearest_one(
    offer: Callable[..., None], option: str, meant: str
) -> None:
    with pytest.raises(TypeError, match=naming(f"{offer.__name__}()", repr(option), repr(meant))):
        offer(**{option: "x"})


def test_an_unknown_option_that_is_like_none_is_told_what_there_is() -> None:
    with pytest.raises(TypeError, match=naming("tool()", "'zzz'", "annotations", "title")):
        tool(zzz=1)


@pytest.mark.parametrize(("schema", "found"), [({"type": "objekt"}, ["'objekt'"]), ({"properties": {}}, ["missing"])])
def test_an_input_schema_says_that_arguments_are_an_object(schema: dict[str, Any], found: list[str]) -> None:
    with pytest.raises(ValueError, match=naming("input_schema", '"type"', '"object"', *found)):
        Server("wrong").add_tool(lambda arguments: "", name="raw", input_schema=schema)


def test_a_name_goes_by_its_keyword() -> None:
    wrong: Any = Server("wrong")
    for offer in ("tool", "prompt"):
        with pytest.raises(TypeError, match=rf"{offer}\(name='x'\)"):
            getattr(wrong, offer)("x")
        with pytest.raises(TypeError, match=naming(offer, "function", 5)):
            getattr(wrong, offer)(5)


def test_a_resource_has_its_uri_first() -> None:
    wrong: Any = Server("wrong")
    with pytest.raises(TypeError, match=naming("URI", "resource('config://app')")):
        wrong.resource(function)
    with pytest.raises(TypeError, match=naming("URI")):
        wrong.add_resource(function, "b://x")
    with pytest.raises(TypeError, match=naming("b://x", "function", "'c'")):
        wrong.add_resource("b://x", "c")


def test_a_completion_says_how_it_is_offered() -> None:
    wrong: Any = Server("wrong")
    for said in ((function,), ("review", "language"), ()):
        with pytest.raises(TypeError, match=r"@server\.complete\(prompt='review', argument='language'\)"):
            wrong.complete(*said)


def test_a_question_has_its_key_first() -> None:
    wrong: Any = Elicit
    with pytest.raises(TypeError, match=naming("key")):
        wrong(str, "seat")


def test_an_update_is_of_a_uri() -> None:
    with pytest.raises(ValueError, match=naming("resource_updated", "'zz'", "URI")):
        Server("wrong").resource_updated("zz")


class Opaque:
    """A class that no JSON can be made into."""


def test_a_parameter_that_json_cannot_be_made_into_is_named() -> None:
    def book(flight: str, seat: Opaque) -> str:
        return ""

    for offer in (Server("wrong").add_tool, Server("wrong").add_prompt):
        with pytest.raises(TypeError, match=naming("book", "'seat'", "Opaque")):
            offer(book)


@pytest.mark.parametrize("kind", [list[int], list, dict[str, str], tuple[int, ...]])
def test_a_prompt_takes_what_a_string_can_become(kind: Any) -> None:
    def say(numbers: str) -> str:
        return ""

    say.__annotations__["numbers"] = kind
    with pytest.raises(TypeError, match=naming("say", "'numbers'", "strings")):
        Server("wrong").add_prompt(say)
    say.__annotations__["numbers"] = Annotated[kind, BeforeValidator(str.split)]
    Server("right").add_prompt(say)


RULE = re.compile(r"\b[LMS]-[A-Z]+-\d|\brow \d|\bSEP-\d")


def said(node: ast.AST) -> list[str]:
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return [text for text in texts if isinstance(text, str)]


def test_no_error_speaks_of_the_numbers_of_rules() -> None:
    for path in (ROOT / "trio_mcp" / "server").glob("*.py"):
        raised = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Raise)]
        assert [text for node in raised for text in said(node) if RULE.search(text)] == []


def test_a_return_type_that_no_json_can_be_made_of_is_named_with_its_function() -> None:
    def book() -> Opaque:
        return Opaque()

    with pytest.raises(TypeError, match=naming("book", "Opaque")):
        Server("wrong").add_tool(book)


def test_a_context_may_be_optional() -> None:
    async def book(flight: str, ctx: Context | None = None) -> str:
        return flight

    offered = Server("right").add_tool(book)
    assert list(offered.model.input_schema["properties"]) == ["flight"]


def test_what_is_a_context_or_something_else_is_refused() -> None:
    def book(ctx: Context | str) -> str:
        return ""

    with pytest.raises(TypeError, match=naming("book", "'ctx'", "`ctx: Context`")):
        Server("wrong").add_tool(book)


@pytest.mark.parametrize(
    ("offer", "keywords"),
    [(Server.tool, ToolKeywords), (Server.prompt, PromptKeywords), (Server.resource, ResourceKeywords)],
)
def test_the_help_names_every_option(offer: Callable[..., object], keywords: type) -> None:
    assert offer.__doc__ is not None
    assert [name for name in keywords.__annotations__ if f"`{name}`" not in offer.__doc__] == []
