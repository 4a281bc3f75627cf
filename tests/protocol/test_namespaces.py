"""Names and URIs with the prefix of a server, as groups and mounts make them."""

from __future__ import annotations

from hypothesis import assume, given, strategies as st

from trio_mcp.protocol.uri.namespaces import PREFIX, Namespace

prefixes = st.from_regex(PREFIX, fullmatch=True)
names = st.text(min_size=1, max_size=40)
uris = st.builds(
    "{}:{}{}".format, st.from_regex(r"[a-z][a-z0-9+.-]{0,9}", fullmatch=True), st.sampled_from(["", "//"]), names
)


@given(prefixes | st.just(""), names)
def test_the_server_gets_its_own_name_back(prefix: str, name: str) -> None:
    space = Namespace(prefix)
    assert space.own_name(space.outer_name(name)) == name


@given(prefixes | st.just(""), uris)
def test_the_server_gets_its_own_uri_back(prefix: str, uri: str) -> None:
    space = Namespace(prefix)
    assert space.own_uri(space.outer_uri(uri)) == uri


@given(prefixes, prefixes, names, uris)
def test_no_server_has_a_name_of_another_unless_the_prefixes_begin_alike(
    prefix: str, other: str, name: str, uri: str
) -> None:
    space = Namespace(prefix)
    assume(not f"{other}_".startswith(f"{prefix}_"))
    if not f"{prefix}_".startswith(f"{other}_"):
        assert space.own_name(Namespace(other).outer_name(name)) is None
    if not uri.partition(":")[2].removeprefix("//").startswith(f"{prefix}/"):
        assert space.own_uri(Namespace(other).outer_uri(uri)) is None


@given(prefixes, names)
def test_a_name_without_the_prefix_is_none_of_the_server(prefix: str, name: str) -> None:
    assume(not name.startswith(f"{prefix}_"))
    assert Namespace(prefix).own_name(name) is None
    assert Namespace(prefix).own_name(f"{prefix}_") is None
