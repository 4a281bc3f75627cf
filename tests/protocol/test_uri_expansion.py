"""The examples of RFC 6570, section 3.2, and what is no template."""

from __future__ import annotations

import pytest

from trio_mcp.protocol.uri.expressions import MAX_TEMPLATE, MAX_VARIABLES
from trio_mcp.protocol.uri.template import UriTemplate

VALUES: dict[str, str | list[str] | dict[str, str]] = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_keys": {},
}

EXAMPLES = """
{count} one,two,three
{count*} one,two,three
{/count} /one,two,three
{/count*} /one/two/three
{;count} ;count=one,two,three
{;count*} ;count=one;count=two;count=three
{?count} ?count=one,two,three
{?count*} ?count=one&count=two&count=three
{&count*} &count=one&count=two&count=three
{var} value
{hello} Hello%20World%21
{half} 50%25
O{empty}X OX
O{undef}X OX
{x,y} 1024,768
{x,hello,y} 1024,Hello%20World%21,768
?{x,empty} ?1024,
?{x,undef} ?1024
?{undef,y} ?768
{var:3} val
{var:30} value
{list} red,green,blue
{list*} red,green,blue
{keys} semi,%3B,dot,.,comma,%2C
{keys*} semi=%3B,dot=.,comma=%2C
{+var} value
{+hello} Hello%20World!
{+half} 50%25
{base}index http%3A%2F%2Fexample.com%2Fhome%2Findex
{+base}index http://example.com/home/index
O{+empty}X OX
O{+undef}X OX
{+path}/here /foo/bar/here
here?ref={+path} here?ref=/foo/bar
{+x,hello,y} 1024,Hello%20World!,768
{+path,x}/here /foo/bar,1024/here
{+path:6}/here /foo/b/here
{+list} red,green,blue
{+list*} red,green,blue
{+keys} semi,;,dot,.,comma,,
{+keys*} semi=;,dot=.,comma=,
{#var} #value
{#hello} #Hello%20World!
{#half} #50%25
foo{#empty} foo#
foo{#undef} foo
{#x,hello,y} #1024,Hello%20World!,768
{#path,x}/here #/foo/bar,1024/here
{#path:6}/here #/foo/b/here
{#list} #red,green,blue
{#list*} #red,green,blue
{#keys} #semi,;,dot,.,comma,,
{#keys*} #semi=;,dot=.,comma=,
{.who} .fred
{.who,who} .fred.fred
{.half,who} .50%25.fred
www{.dom*} www.example.com
X{.var} X.value
X{.empty} X.
X{.undef} X
X{.var:3} X.val
X{.list} X.red,green,blue
X{.list*} X.red.green.blue
X{.keys} X.semi,%3B,dot,.,comma,%2C
X{.keys*} X.semi=%3B.dot=..comma=%2C
X{.empty_keys} X
X{.empty_keys*} X
{/who} /fred
{/who,who} /fred/fred
{/half,who} /50%25/fred
{/who,dub} /fred/me%2Ftoo
{/var} /value
{/var,empty} /value/
{/var,undef} /value
{/var,x}/here /value/1024/here
{/var:1,var} /v/value
{/list} /red,green,blue
{/list*} /red/green/blue
{/list*,path:4} /red/green/blue/%2Ffoo
{/keys} /semi,%3B,dot,.,comma,%2C
{/keys*} /semi=%3B/dot=./comma=%2C
{;who} ;who=fred
{;half} ;half=50%25
{;empty} ;empty
{;v,empty,who} ;v=6;empty;who=fred
{;v,bar,who} ;v=6;who=fred
{;x,y} ;x=1024;y=768
{;x,y,empty} ;x=1024;y=768;empty
{;x,y,undef} ;x=1024;y=768
{;hello:5} ;hello=Hello
{;list} ;list=red,green,blue
{;list*} ;list=red;list=green;list=blue
{;keys} ;keys=semi,%3B,dot,.,comma,%2C
{;keys*} ;semi=%3B;dot=.;comma=%2C
{?who} ?who=fred
{?half} ?half=50%25
{?x,y} ?x=1024&y=768
{?x,y,empty} ?x=1024&y=768&empty=
{?x,y,undef} ?x=1024&y=768
{?var:3} ?var=val
{?list} ?list=red,green,blue
{?list*} ?list=red&list=green&list=blue
{?keys} ?keys=semi,%3B,dot,.,comma,%2C
{?keys*} ?semi=%3B&dot=.&comma=%2C
{&who} &who=fred
{&half} &half=50%25
?fixed=yes{&x} ?fixed=yes&x=1024
{&x,y,empty} &x=1024&y=768&empty=
{&x,y,undef} &x=1024&y=768
{&var:3} &var=val
{&list} &list=red,green,blue
{&list*} &list=red&list=green&list=blue
{&keys} &keys=semi,%3B,dot,.,comma,%2C
{&keys*} &semi=%3B&dot=.&comma=%2C
"""
ROWS = [tuple(row.split()) for row in EXAMPLES.strip().splitlines()]


def flaw(text: str) -> str:
    with pytest.raises(ValueError) as caught:
        UriTemplate(text)
    return str(caught.value)


@pytest.mark.parametrize(("template", "expansion"), ROWS, ids=[template for template, _ in ROWS])
def test_the_examples_of_the_rfc_expand_as_it_says(template: str, expansion: str) -> None:
    assert UriTemplate(template).expand(VALUES) == expansion


def test_an_undefined_expression_leaves_nothing() -> None:
    for operator in ("", "+", "#", ".", "/", ";", "?", "&"):
        assert UriTemplate(f"{{{operator}undef,empty_keys*}}").expand(VALUES) == ""


def test_the_only_example_that_no_matcher_can_read_is_refused() -> None:
    assert "'path' and 'var' of a URI template cannot be told apart" in flaw("up{+path}{var}/here")


def test_a_prefix_counts_characters_and_not_bytes() -> None:
    assert UriTemplate("{name:1}").expand({"name": "éa"}) == "%C3%A9"


def test_a_prefix_of_a_list_is_refused() -> None:
    with pytest.raises(ValueError, match="first characters"):
        UriTemplate("{list:3}").expand(VALUES)


def test_triplets_stay_as_they_are_in_a_reserved_expansion_alone() -> None:
    assert UriTemplate("{+a} {a}".replace(" ", "-")).expand({"a": "%41%zz"}) == "%41%25zz-%2541%25zz"


def test_literals_beyond_ascii_are_encoded() -> None:
    assert UriTemplate("café://{x}").expand(VALUES) == "caf%C3%A9://1024"


def test_variables_are_listed_once_in_their_order() -> None:
    template = UriTemplate("a://{b}/{a}/{b}{?c,a,d.e,f%20g}")
    assert template.variables == ("b", "a", "c", "d.e", "f%20g")
    assert template.optional == {"c", "d.e", "f%20g"}


def test_a_template_is_known_by_its_text() -> None:
    assert UriTemplate("a://{b}") == UriTemplate("a://{b}") != UriTemplate("a://{c}")
    assert len({UriTemplate("a://{b}"), UriTemplate("a://{b}")}) == 1
    assert str(UriTemplate("a://{b}")) == "a://{b}"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("a://{b", "character 4: the brace is never closed"),
        ("a://b}", "character 5: the brace was never opened"),
        ("{a{b}}", "is no variable"),
        ("{}", "is no variable"),
        ("{a,}", "is no variable"),
        ("{?}", "is no variable"),
        ("{a b}", "is no variable"),
        ("{a-b}", "is no variable"),
        ("{a..b}", "is no variable"),
        ("{.a.}", "is no variable"),
        ("{é}", "is no variable"),
        ("{a:0}", "is no variable"),
        ("{a:10000}", "is no variable"),
        ("{a:}", "is no variable"),
        ("{a*:3}", "is no variable"),
        ("{a:3*}", "is no variable"),
        ("{%4}", "is no variable"),
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
