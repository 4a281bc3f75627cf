"""Which modules may decide by the era of a peer, legacy or modern; the list below is the whole of it.

A module decides if its code names an era or a revision, asks a value for its era, or reads it out of something else that only
one era has. Everything else is handed the terms of a request, a codec or a dialect, and works with any of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "trio_mcp", ROOT / "transports" / "trio_mcp_transports")

MAY_DECIDE = {
    "trio_mcp.protocol.revisions": "the revisions as data",
    "trio_mcp.protocol.codec.reading": "the classification of a message, its terms, and what a revision lets it say",
    "trio_mcp.protocol.codec.restoring": "restores the terms of a request in another process",
    "trio_mcp.protocol.codec.writing": "writes a revision",
    "trio_mcp.protocol.codec.downlevel": "what older revisions lack",
    "trio_mcp.protocol.codec.rewrites": "what older revisions write differently",
    "trio_mcp.session.server": "picks the kind of call that asks as the terms say",
    "trio_mcp.session.session_state": "negotiates a legacy revision",
    "trio_mcp_transports.asgi.exchange": "what is checked of a modern POST, and its HTTP statuses",
    "trio_mcp_transports.http.server.app": "the HTTP router: routes a POST by its era, by body and header",
    "trio_mcp.session.client": "encodes as the newest legacy revision until the dialect is chosen",
    "trio_mcp.relay.opening": "finds out the era of a server for a proxy, and whether the host speaks the same revision",
    "trio_mcp.relay.forwarding": "a proxy adds what it answers to each modern request, and answers its part of rounds",
    "trio_mcp.relay.session": "the first message of a host says which era it speaks",
    "trio_mcp_transports.http.sessions.stateless": "the legacy revision of a request that names none",
    "trio_mcp.client.dialects": "finds out the era of a server, and what the client does in each era",
}

NAME_ERAS_TO_PEOPLE = ("trio_mcp.cli.", "trio_mcp.testing.")

NAMES = frozenset(
    {"Era", "era", "era_of", "is_modern", "is_legacy", "modern", "legacy_mode", "asks_in_rounds"}
    | {"MODERN", "LEGACY", "NEWEST_LEGACY", "MODERN_ONLY"}
)
"""Names and attributes that are an era, or are true for one of them."""

REVISION = re.compile(r"20\d\d-\d\d-\d\d")

ONLY_MODERN = frozenset({"METHOD_HEADER", "stamp", "request_meta"})
"""What only one era has: asking whether it is there asks for the era."""

PER_REQUEST = frozenset({"request", "inbound", "event"})
"""What has a `meta` of which one era has none."""


def modules() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for file in package.rglob("*.py"):
            parts = file.relative_to(package.parent).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = file
    return found


def decisions(source: str) -> Iterator[str]:
    """What in this source decides by era, with its line."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        sign = sign_of(node, docstrings)
        if sign is not None:
            yield f"{getattr(node, 'lineno', 0)}: {sign}"


def sign_of(node: ast.AST, docstrings: set[int]) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) if name in NAMES:
            return name
        case ast.Constant(value=str() as text) if id(node) not in docstrings and REVISION.fullmatch(text):
            return text
        case ast.Compare(ops=[ast.Is() | ast.IsNot()], left=ast.Attribute(attr="meta", value=ast.Name(id=name))):
            return f"{name}.meta is" if name in PER_REQUEST else None
        case ast.Compare(ops=[ast.In() | ast.NotIn()], left=ast.Name(id=name)) if name in ONLY_MODERN:
            return f"{name} in"
        case ast.Compare(comparators=[ast.Constant(value="legacy" | "modern" as era)]):
            return era
        case ast.Call(func=ast.Name(id="bool"), args=[ast.Attribute(attr=name)]) if name in ONLY_MODERN:
            return f"bool({name})"
    return None


@cache
def deciding() -> dict[str, list[str]]:
    found = {name: list(decisions(file.read_text())) for name, file in modules().items()}
    return {name: signs for name, signs in found.items() if signs and not name.startswith(NAME_ERAS_TO_PEOPLE)}


def test_no_other_module_decides_by_era() -> None:
    others = {name: signs for name, signs in deciding().items() if name not in MAY_DECIDE}
    assert others == {}, "hand the module terms, a codec or a dialect instead"


def test_every_module_of_the_list_still_decides() -> None:
    assert sorted(MAY_DECIDE.keys() - deciding().keys()) == [], "take it off the list"


@pytest.mark.parametrize(
    "source",
    [
        "from trio_mcp.protocol.revisions import Era",
        "if session.modern: pass",
        "if codec.revision.era is x: pass",
        "if request.meta is None: pass",
        "if event.meta is not None: pass",
        "if codec.revision.name == '2026-07-28': pass",
        "if version >= '2025-06-18': pass",
        "if METHOD_HEADER not in sent: pass",
        "legacy = not bool(self.stamp)",
        "if facts.terms.asks_in_rounds: pass",
        "if mode == 'legacy': pass",
    ],
)
def test_a_decision_is_noticed(source: str) -> None:
    assert list(decisions(source))


@pytest.mark.parametrize(
    "source",
    [
        "'''A session of 2025-11-25.'''",
        "if message.meta is None: pass",
        "codec.encode_result(method, result)",
        "# if session.modern",
        "text = 'since 2026-07-28 it may not'",
    ],
)
def test_code_that_does_not_decide_by_era_is_not_reported(source: str) -> None:
    assert not list(decisions(source))
