"""`$ref`: finding its target, for schemas that values are validated with and for those that are only read.

`referencing` resolves them, because jsonschema resolves with it too: a second resolver could disagree with it about what a schema
means. Nothing is ever fetched.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

from ...types.base import JsonObject, JsonValue


class Resolver(Protocol):
    """A resolver of `referencing`, which does not export its class."""

    def lookup(self, ref: str) -> Resolved: ...

    def in_subresource(self, subresource: Any) -> Resolver: ...


class Resolved(Protocol):
    """The target of a reference, and the resolver for the references in it."""

    @property
    def contents(self) -> JsonValue: ...

    @property
    def resolver(self) -> Resolver: ...


def lookup(reference: str, resolver: Resolver) -> Resolved | None:
    """Return the target of a reference, or None if it leads nowhere."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415  see _resolver_of

    try:
        return resolver.lookup(reference)
    # The last two are raised for a pointer that goes on below a string or a number.
    except (Unresolvable, ValueError, TypeError):
        return None


def dereference(schema: JsonObject, root: JsonObject) -> JsonObject | None:
    """Return a copy of `schema` without `$ref`: the members of its target, and over them its own.

    Returns:
        None if a reference leads out of `root`, to no schema, or back to itself.
    """
    merged, followed = dict(schema), set[str]()
    while isinstance(reference := merged.pop("$ref", None), str):
        target = lookup(reference, _resolver_of(root))
        if target is None or not isinstance(target.contents, dict) or reference in followed:
            return None
        followed.add(reference)
        merged = {**target.contents, **merged}
    return merged


def _resolver_of(root: JsonObject) -> Resolver:
    # `referencing` takes 14 ms to import, and most servers have no `$ref` that they must read.
    from referencing import Registry  # noqa: PLC0415
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415

    return cast("Resolver", Registry[Any]().with_resource("", DRAFT202012.create_resource(root)).resolver())
