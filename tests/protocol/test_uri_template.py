"""URI templates: which texts are templates, and matching a URI against one, in linear time and safe for paths."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import assume, given, strategies as st
from uri_expansion import expand

from trio_mcp.protocol.uri.expressions import MAX_TEMPLATE, MAX_VARIABLES, parse_template
from trio_mcp.protocol.uri.matching import UriTemplate, to_filter, to_segments
from trio_mcp.protocol.uri.uris import MAX_URI


def match(template: str, uri: str) -> dict[str, str] | None:
    return UriTemplate(template).match(uri)


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
def test_an_invalid_template_is_rejected(reason: str, templates: str) -> None:
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
def test_ambiguous_adjacent_variables_are_rejected(template: str) -> None:
    assert "ambiguous" in flaw(template)


@pytest.mark.parametrize("template", ["{a}{/b}", "{a}{?b}", "{+a}{?b}{#c}", "{a}{;b}{?c}", "{/a}{/b}", "{/a*}{?b}"])
def test_adjacent_variables_that_can_are_not(template: str) -> None:
    UriTemplate(template)


# What matches


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("config://app", "config://app", {}),
        ("users://{id}/profile", "users://a%20b%2Cc/profile", {"id": "a b,c"}),
        ("users://{id}/profile", "users://bob@example.com:1/profile", {"id": "bob@example.com:1"}),
        ("users://{id}", "users://José", {"id": "José"}),
        ("users://{id}", "users://Jos%c3%a9", {"id": "José"}),
        ("café://{id}", "café://1", {"id": "1"}),
        ("café://{id}", "caf%C3%A9://1", {"id": "1"}),
        ("f:///{name}.{type}", "f:///a.b.c", {"name": "a.b", "type": "c"}),
        ("f:///{+path}/{name}", "f:///a/b/c", {"path": "a/b", "name": "c"}),
        ("f://{+path}", "f:///etc/x", {"path": "/etc/x"}),
        ("f://h{/path*}", "f://h", {}),
        ("f://h{/a,b}", "f://h/1", {"a": "1"}),
        ("f://h{/a}/end", "f://h/end/end", {"a": "end"}),
        ("f://{x,y}", "f://1,", {"x": "1", "y": ""}),
        ("f://{list}", "f://a,b", {"list": "a,b"}),
        ("f://h{.dom*}", "f://h.a.b", {"dom": "a.b"}),
        ("f://h{.a,b}", "f://h.1.2", {"a": "1", "b": "2"}),
        ("f://h{#part}", "f://h#a/b?c", {"part": "a/b?c"}),
        ("f://h{;x,y}", "f://h;y=2;x", {"x": "", "y": "2"}),
        ("s://q{?q,lang}", "s://q?lang=en&q=a", {"q": "a", "lang": "en"}),
        ("s://q{?q,lang}", "s://q?lang=", {"lang": ""}),
        ("s://q{?q,lang}", "s://q", {}),
        ("s://q{?q}", "s://q?q=a=b/c?d", {"q": "a=b/c?d"}),
        ("s://q{?q*}", "s://q?q=a&q=b", {"q": "a,b"}),
        ("s://{+path}{?q}{#f}", "s://a/b?q=1#c", {"path": "a/b", "q": "1", "f": "c"}),
        ("s://{+path}{?q}{#f}", "s://a/b#c", {"path": "a/b", "f": "c"}),
        ("s://{a:1}/{a}", "s://v/value", {"a": "value"}),
        ("s://{a}/{a:1}", "s://value/v", {"a": "value"}),
        ("s://{a}/{a}", "s://1/1", {"a": "1"}),
        ("", "", {}),
    ],
)
def test_a_uri_gives_its_values(template: str, uri: str, values: dict[str, str]) -> None:
    assert match(template, uri) == values


OTHER_URIS = {
    "config://app": "config://app/ config://ap",
    "users://{id}/profile": "users:///profile users://1/2/profile users://1/profile?x users://1/profil",
    "users://{id}": "users://1?x=1 users://1#x users://%zz users://% users://%ff users://\ud800",
    "users://{+id}": "users://",
    "f://{x,y}": "f://1 f://1,2,3",
    "f://h{/a,b}": "f://h/1/2/3",
    "f://h{#a,b}": "f://h,1",
    "s://q{?q}": "s://q? s://q?q s://q?q=1&q=2 s://q?q=1&other=2 s://q?Q=1 s://q&q=1",
    "s://q{?keys*}": "s://q?a=1&b=2",
    "s://{a:1}": "s://12",
    "s://{a:1}/{a}": "s://w/value",
    "s://{a}/{a}": "s://1/2",
}


@pytest.mark.parametrize(("template", "uris"), OTHER_URIS.items())
def test_another_uri_does_not_match(template: str, uris: str) -> None:
    assert [uri for uri in uris.split() if match(template, uri) is not None] == []


# The inverse of the expansion

texts = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\"), min_size=1)
values = texts.filter(lambda text: "%" not in text and text not in {".", ".."})
TEMPLATES = (
    "t://{a}/{b}/{c} t://x/{a}{/b}{?c} t://{a,b,c} t://h{/a,b,c} t://h{;a,b,c} t://h{?a,b,c} t://h?fixed=1{&a,b,c}"
    " t://{a}{?b}{#c} t://{a}/mid/{b}{/c*}"
)


@given(st.sampled_from(TEMPLATES.split()), values, values, values)
def test_a_match_is_the_inverse_of_the_expansion(text: str, a: str, b: str, c: str) -> None:
    template, given_values = UriTemplate(text), {"a": a, "b": b, "c": c}
    assert template.match(expand(text, given_values)) == given_values


@given(st.sampled_from(TEMPLATES.split()), st.text(max_size=12))
def test_what_matches_expands_to_the_same_values_again(text: str, rest: str) -> None:
    template = UriTemplate(text)
    found = template.match("t://" + rest)
    if found is not None:
        assert template.match(expand(text, {name: value.split("/") for name, value in found.items()})) == found


@given(st.lists(values, min_size=1))
def test_an_exploded_path_is_the_inverse_of_a_list(items: list[str]) -> None:
    template = "t://h{/path*}"
    assert match(template, expand(template, {"path": items})) == {"path": "/".join(items)}


@given(st.lists(values, min_size=1).map("/".join))
def test_a_reserved_value_is_the_inverse_of_a_path(path: str) -> None:
    template = "t:///{+path}"
    assert match(template, expand(template, {"path": path})) == {"path": path}


# Traversal

DOTS = ["..", ".", "%2e%2e", "%2E.", "%252e%252e", "%25252E%25252e", "%2e", "..%5Cx", "..%255Cx"]


@pytest.mark.parametrize("template", ["f:///{a}", "f://{a}/x", "f://h{/a}", "f://h{.a}", "f://h{;a}", "f://{a,b}"])
def test_a_value_is_one_segment(template: str) -> None:
    uri = expand(template, {"a": "VALUE", "b": "b"})
    assert match(template, uri) is not None
    others = ["..%2Fx", "..%252Fx", "a%2Fb", "a%5Cb", "a\\b", "a%00", "a\x00", "a%0A", "%7F", "%C2%85"]
    assert [value for value in (*DOTS, *others) if match(template, uri.replace("VALUE", value)) is not None] == []


@pytest.mark.parametrize("template", ["f:///{+a}", "f://{+a}/x", "f://h{/a*}", "f://h{#a}", "f://h{?a}", "f://h?x{&a}"])
def test_no_segment_of_a_path_leads_out(template: str) -> None:
    uri = expand(template, {"a": "VALUE"})
    assert match(template, uri) is not None
    paths = [around.replace("{}", dots) for around in ("{}", "{}/x", "x/{}", "x/{}/x", "x%2F{}%2Fx") for dots in DOTS]
    assert [path for path in paths if match(template, uri.replace("VALUE", path)) is not None] == []


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        *[("f:///{+a}", f"f:///{value}") for value in ("%00", "a%0Ab", "a\\b", "%5C%5Chost")],
        *[(template, uri) for template in ("f:///{+a}", "f://{/a*}") for uri in ("f:////etc", "f:///%2Fetc")],
    ],
)
def test_a_path_below_a_root_is_not_absolute_and_holds_no_control_characters(template: str, uri: str) -> None:
    assert match(template, uri) is None


def test_dots_within_a_segment_are_no_traversal() -> None:
    for name in ("...", "..a", "a..", ".hidden", "a.b"):
        assert match("f:///{a}", f"f:///{name}") == {"a": name}
        assert match("f:///{+a}", f"f:///x/{name}/y") == {"a": f"x/{name}/y"}


def test_a_value_is_decoded_once() -> None:
    assert match("f:///{a}", "f:///%2541") == {"a": "%41"}


@given(st.text("./%25eEfFcC\\x", max_size=24))
def test_no_value_leads_out_however_it_is_written(rest: str) -> None:
    for template in ("f:///{a}", "f:///{+a}", "f://{/a*}"):
        found = match(template, "f:///" + rest)
        assume(found)
        assert found is not None
        assert {".", ".."}.isdisjoint(found["a"].replace("\\", "/").split("/"))


# Cost


def steps(template: UriTemplate, uri: str) -> int:
    """How many lines of Python one match runs."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        # Others may run here too: what the garbage collector calls, for one.
        ours = frame.f_code.co_filename.endswith(("uri/matching.py", "uri/matching.py", "parse.py"))
        count += ours and event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        template.match(uri)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    ("template", "unit"),
    [
        ("t://{a}-{b}-{c}!", "-"),
        ("t://{+a}-{+b}-{+c}-{+d}!", "-"),
        ("t://{+a}aa{+b}aa{+c}ab", "a"),
        ("t://{a,b,c}", ","),
        ("t://h{/a*}/x{/b*}/y", "/x"),
        ("t://h{.a*}.x{.b*}.y", ".x"),
        ("t://h{?a*}", "&a=1"),
        ("t://{+a}", "%2525"),
        ("t://{+a}", "../"),
        ("t://{+a}", "é"),
    ],
)
def test_the_steps_grow_with_the_uri_and_no_faster(template: str, unit: str) -> None:
    parsed = UriTemplate(template)
    parsed.match("t://h?a=1" + unit)  # the first match of a process fills caches of the standard library
    counts = [steps(parsed, "t://h?a=1" + unit * size) for size in (200, 400, 800)]
    assert counts[2] - counts[1] <= 2 * (counts[1] - counts[0]) + 10
    assert counts[2] <= 50 * 800 * len(quote(unit))


def test_a_longer_uri_than_the_limit_matches_nothing() -> None:
    template = UriTemplate("t://{+a}")
    assert template.match("t://" + "x" * (MAX_URI - 4)) is not None
    assert template.match("t://" + "x" * (MAX_URI - 3)) is None


def test_what_is_not_ascii_counts_against_the_limit_as_it_is_encoded() -> None:
    template = UriTemplate("t://{a}")
    assert template.match("t://" + "é" * ((MAX_URI - 4) // 6)) is not None
    assert template.match("t://" + "é" * ((MAX_URI - 4) // 6 + 1)) is None
    assert steps(template, "t://" + "\U0001f600" * (MAX_URI - 4)) < 100


def test_a_uri_of_another_form_costs_nothing_whatever_it_holds() -> None:
    template = UriTemplate("t://{a}-{b}/x")
    for uri in ("u://a-b/x", "t://" + "-" * 4000 + "/y", "t://" + "a/x" * 1000):
        assert template.steps(uri) == 0
        assert steps(template, uri) < 20


def test_a_template_beyond_ascii_matches_both_ways_to_write_it() -> None:
    assert UriTemplate("t://é/{a}").match("t://é/x") == UriTemplate("t://é/{a}").match("t://%C3%A9/x") == {"a": "x"}


SHORT_TEMPLATES = (
    "t:{a} t:{a}/{b} t:{+a}.{b} {a,b} t:{/a*}/x t:{?a,b} t:{a}{?b*} t:{;a,b} t{.a,b} t:{#a} {+a,b}x t:{a}{#b}"
    " t:{a}{/b}{?c} t:{a}[b]{&d} t:({a})*.{b}$ t:{a:3}-{b} t{&a}"
)


@given(st.sampled_from(SHORT_TEMPLATES.split()), st.text(alphabet="t:abx/.,?=&;#%20[]^$-\n", max_size=14))
def test_the_filter_finds_exactly_what_the_segments_find(text: str, rest: str) -> None:
    segments = to_segments(parse_template(text))
    fits = to_filter(segments)
    for uri in (rest, "t:" + rest, "t" + rest):
        fitting = [False] * len(uri) + [True]
        for segment in reversed(segments):
            fitting = [end >= 0 for end in segment.ends(uri, fitting)]
        assert fits(uri) is fitting[0], uri
