"""URI templates: which texts are templates, and what a template says of its variables."""

from __future__ import annotations

import pytest

from trio_mcp.protocol.uri.expressions import MAX_TEMPLATE, MAX_VARIABLES
from trio_mcp.protocol.uri.template import UriTemplate


def flaw(text: str) -> str:
    with pytest.raises(ValueError) as caught:
        UriTemplate(text)
    return str(caught.value)


def test_variables_are_listed_once_in_their_order() -> None:
    template = UriTemplate("a://{b}/{a}/{b}{?c,a,d.e,f%20g}")
    assert template.variables == ("b", "a", "c", "d.e", "f%20g")
    assert template.optional == {"c", "d.e", "f%20g"}


NO_TEMPLATES = {
    "character 4: the brace is never closed": "a://{b",
    "character 5: the brace was never opened": "a://b}",
    "is not a variable": ("{a{b}} {} {a,} {?} {a-b} {a..b} {.a.} {é} {a:0} {a:10000} {a:} {a*:3} {a:3*} {%4}"),
    "the operator '=' is reserved": "{=a}",
    "the operator '|' is reserved": "{|a}",
    "the operator '!' is reserved": "{!a}",
    "cannot stand in a URI": "a%2 a\\b{c} a\x00",
}


@pytest.mark.parametrize(("reason", "templates"), NO_TEMPLATES.items())
def test_what_is_no_template_is_refused(reason: str, templates: str) -> None:
    assert [text for text in templates.split() if reason not in flaw(text)] == []


def test_a_template_holds_no_blanks() -> None:
    assert "cannot stand in a URI" in flaw("a b")
    assert "is not a variable" in flaw("{a b}")


def test_a_template_has_limits() -> None:
    assert f"the limit is {MAX_TEMPLATE}" in flaw("a" * (MAX_TEMPLATE + 1))
    UriTemplate("a" * MAX_TEMPLATE)
    assert f"the limit is {MAX_VARIABLES}" in flaw("{a}/" * (MAX_VARIABLES + 1))
    UriTemplate("{a}/" * MAX_VARIABLES)


# The first is the only example of RFC 6570, section 3.2, that no matcher can read.
AMBIGUOUS = (
    "up{+path}{var}/here {a}{b} {+a}{b} {+a}{/b} {a}{.b} {.a}{.b} {/a}{?b}{c} {?a}{&b} {?a}{/b} {/a*}{/b} {#a}{#b}{c}"
)


@pytest.mark.parametrize("template", AMBIGUOUS.split())
def test_adjacent_variables_that_cannot_be_told_apart_are_refused(template: str) -> None:
    assert "cannot be told apart" in flaw(template)


@pytest.mark.parametrize("template", ["{a}{/b}", "{a}{?b}", "{+a}{?b}{#c}", "{a}{;b}{?c}", "{/a}{/b}", "{/a*}{?b}"])
def test_adjacent_variables_that_can_are_not(template: str) -> None:
    UriTemplate(template)
