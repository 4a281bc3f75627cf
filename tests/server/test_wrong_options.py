"""What cannot be offered is refused where it is written, in words that say what to write instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Annotated, Any

import pytest
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
    ({"timeout": True}, TypeError),
    ({"timeout": None}, TypeError),
    ({"timeout": -1}, ValueError),
    ({"timeout": 0}, ValueError),
    ({"timeout": float("nan")}, ValueError),
    ({"name": 3}, TypeError),
    ({"resume": "reply"}, ValueError),
    ({"elicits": "seat"}, TypeError),
    ({"elicits": ["seat"]}, TypeError),
]


def assert_names(caught: pytest.ExceptionInfo[Exception], options: dict[str, Any]) -> None:
    """The error names the option and shows the value; `tests/test_checks.py` holds the wording."""
    ((name, value),) = options.items()
    shown = value[0] if isinstance(value, list) else value
    assert re.match(rf"(each item of )?{name} must be .+, not {re.escape(repr(shown))}", str(caught.value))


@pytest.mark.parametrize("offer", [tool, prompt, resource])
@pytest.mark.parametrize(("options", "kind"), COMMON)
def test_an_option_of_all_three_is_rejected_by_name_and_value(
    offer: Callable[..., None], options: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        offer(**options)
    assert_names(caught, options)


@pytest.mark.parametrize(
    ("offer", "options", "kind"),
    [
        (resource, {"ttl": -1}, ValueError),
        (resource, {"ttl": "60"}, TypeError),
        (resource, {"ttl": float("inf")}, ValueError),
        (resource, {"cache_scope": "all"}, ValueError),
        (server, {"list_scope": "everyone"}, ValueError),
        (server, {"list_ttl": "60"}, TypeError),
        (server, {"list_ttl": float("nan")}, ValueError),
        (server, {"options": {"max_seconds": 3}}, TypeError),
        (server, {"page_size": "9"}, TypeError),
        (server, {"page_size": 0}, ValueError),
        (tool, {"max_depth": "3"}, TypeError),
        (tool, {"token_budget": -1}, ValueError),
        (tool, {"output_schema": 5}, TypeError),
    ],
)
def test_an_option_is_rejected_by_name_and_value(
    offer: Callable[..., None], options: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        offer(**options)
    assert_names(caught, options)


def test_capabilities_are_a_set_and_not_one_of_them() -> None:
    with pytest.raises(TypeError, match=r"requires: .*{'sampling'}"):
        tool(requires="sampling")


@pytest.mark.parametrize(
    ("offer", "options", "advice"),
    [
        (tool, {"titel": "x"}, "'title'"),
        (prompt, {"titel": "x"}, "'title'"),
        (resource, {"mime": "x"}, "'mime_type'"),
    ],
)
def test_an_unknown_option_is_rejected_with_the_nearest_one(
    offer: Callable[..., None], options: dict[str, Any], advice: str
) -> None:
    with pytest.raises(TypeError, match=rf"{offer.__name__}\(\) has no option .*{advice}"):
        offer(**options)


def test_an_unknown_option_that_is_like_none_is_told_what_there_is() -> None:
    with pytest.raises(TypeError, match=r"tool\(\) has no option 'zzz': there are annotations, .*, title"):
        tool(zzz=1)


@pytest.mark.parametrize(
    ("schema", "found"), [({"type": "objekt"}, "not 'objekt'"), ({"properties": {}}, "and it is missing")]
)
def test_an_input_schema_says_that_arguments_are_an_object(schema: dict[str, Any], found: str) -> None:
    with pytest.raises(ValueError, match=f'input_schema: its "type" has to be "object", .*, {found}'):
        Server("wrong").add_tool(lambda arguments: "", name="raw", input_schema=schema)


def test_a_name_goes_by_its_keyword() -> None:
    wrong: Any = Server("wrong")
    for offer in ("tool", "prompt"):
        with pytest.raises(TypeError, match=rf"{offer}\(name='x'\)"):
            getattr(wrong, offer)("x")
        with pytest.raises(TypeError, match=f"{offer} registers must be a function, not 5"):
            getattr(wrong, offer)(5)


def test_a_resource_has_its_uri_first() -> None:
    wrong: Any = Server("wrong")
    with pytest.raises(TypeError, match=r"needs its URI first, as in resource\('config://app'\)"):
        wrong.resource(function)
    with pytest.raises(TypeError, match="needs its URI first"):
        wrong.add_resource(function, "b://x")
    with pytest.raises(TypeError, match="b://x must be a function, not 'c'"):
        wrong.add_resource("b://x", "c")


def test_a_completion_says_how_it_is_offered() -> None:
    wrong: Any = Server("wrong")
    for said in ((function,), ("review", "language"), ()):
        with pytest.raises(TypeError, match=r"@server\.complete\(prompt='review', argument='language'\)"):
            wrong.complete(*said)


def test_a_question_has_its_key_first() -> None:
    wrong: Any = Elicit
    with pytest.raises(TypeError, match="first the key"):
        wrong(str, "seat")


def test_an_update_is_of_a_uri() -> None:
    with pytest.raises(ValueError, match="resource_updated: 'zz'"):
        Server("wrong").resource_updated("zz")


class Opaque:
    """A class that no JSON can be made into."""


def test_a_parameter_that_json_cannot_be_made_into_is_named() -> None:
    def book(flight: str, seat: Opaque) -> str:
        return ""

    for offer in (Server("wrong").add_tool, Server("wrong").add_prompt):
        with pytest.raises(TypeError, match=r"book: the parameter 'seat' has the type .*Opaque"):
            offer(book)


@pytest.mark.parametrize("kind", [list[int], list, dict[str, str], tuple[int, ...]])
def test_a_prompt_takes_what_a_string_can_become(kind: Any) -> None:
    def say(numbers: str) -> str:
        return ""

    say.__annotations__["numbers"] = kind
    with pytest.raises(
        TypeError, match=r"say: the parameter 'numbers' cannot be a .* arguments of a prompt are strings"
    ):
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

    with pytest.raises(TypeError, match=r"book: it returns .*Opaque"):
        Server("wrong").add_tool(book)


def test_a_context_may_be_optional() -> None:
    async def book(flight: str, ctx: Context | None = None) -> str:
        return flight

    offered = Server("right").add_tool(book)
    assert list(offered.model.input_schema["properties"]) == ["flight"]


def test_what_is_a_context_or_something_else_is_refused() -> None:
    def book(ctx: Context | str) -> str:
        return ""

    with pytest.raises(TypeError, match=r"book: .*'ctx'.*write `ctx: Context`"):
        Server("wrong").add_tool(book)


@pytest.mark.parametrize(
    ("offer", "keywords"),
    [(Server.tool, ToolKeywords), (Server.prompt, PromptKeywords), (Server.resource, ResourceKeywords)],
)
def test_the_help_names_every_option(offer: Callable[..., object], keywords: type) -> None:
    assert offer.__doc__ is not None
    assert [name for name in keywords.__annotations__ if f"`{name}`" not in offer.__doc__] == []


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"max_seconds": "3"}, TypeError),
        ({"watchdog": None}, TypeError),
        ({"settle": -1}, ValueError),
        ({"outcome_grace": float("nan")}, ValueError),
        ({"outbox": 0}, ValueError),
        ({"max_depth": -1}, ValueError),
        ({"max_state": 1.5}, TypeError),
        ({"watched": True}, TypeError),
        ({"actors": 100}, TypeError),
        ({"estimate_tokens": 3}, TypeError),
    ],
)
def test_a_limit_of_a_service_is_rejected_by_name_and_value(wrong: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        ServiceOptions(**wrong)
    assert_names(caught, wrong)
