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


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("a://{b", "character 4: the brace is never closed"),
        ("a://b}", "character 5: the brace was never opened"),
        ("{a{b}}", "is not a variable"),
        ("{}", "is not a variable"),
        ("{a,}", "is not a variable"),
        ("{?}", "is not a variable"),
        ("{a b}", "is not a variable"),
        ("{a-b}", "is not a variable"),
        ("{a..b}", "is not a variable"),
        ("{.a.}", "is not a variable"),
        ("{é}", "is not a variable"),
        ("{a:0}", "is not a variable"),
        ("{a:10000}", "is not a variable"),
        ("{a:}", "is not a variable"),
        ("{a*:3}", "is not a variable"),
        ("{a:3*}", "is not a variable"),
        ("{%4}", "is not a variable"),
        ("{=a}", "the operator '=' is reserved"),
        ("{|a}", "the operator '|' is reserved"),
        ("{!a}", "the operator '!' is reserved"),
        ("a b", "cannot stand in a URI"),
        ("a%2", "cannot stand in a URI"),
        ("a\\b{c}", "cannot stand in a URI"),
        ("a\x00", "cannot stand in a URI"),
    ],
)
def test_what_is_no_template_is_refused(template: str, reason: str) -> None:
    assert reason in flaw(template)


def test_a_template_has_limits() -> None:
    assert f"the limit is {MAX_TEMPLATE}" in flaw("a" * (MAX_TEMPLATE + 1))
    UriTemplate("a" * MAX_TEMPLATE)
    assert f"the limit is {MAX_VARIABLES}" in flaw("{a}/" * (MAX_VARIABLES + 1))
    UriTemplate("{a}/" * MAX_VARIABLES)


@pytest.mark.parametrize(
    "template",
    [
        "up{+path}{var}/here",  # the only example of RFC 6570, section 3.2, that no matcher can read
        "{a}{b}",
        "{+a}{b}",
        "{+a}{/b}",
        "{a}{.b}",
        "{.a}{.b}",
        "{/a}{?b}{c}",
        "{?a}{&b}",
        "{?a}{/b}",
        "{/a*}{/b}",
        "{#a}{#b}{c}",
    ],
)
def test_adjacent_variables_that_cannot_be_told_apart_are_refused(template: str) -> None:
    assert "cannot be told apart" in flaw(template)


@pytest.mark.parametrize("template", ["{a}{/b}", "{a}{?b}", "{+a}{?b}{#c}", "{a}{;b}{?c}", "{/a}{/b}", "{/a*}{?b}"])
def test_adjacent_variables_that_can_are_not(template: str) -> None:
    UriTemplate(template)
