"""Validation that stops at the first wrong item of a container.

Pydantic goes through a whole list or dict and makes an error for each wrong item. A peer could send a million of them, and would
be charged for one. Models keep an error for each of their members: those are as few as the author wrote.
"""

from typing import Final, cast

from pydantic import TypeAdapter
from pydantic_core import CoreSchema, SchemaValidator

CONTAINERS: Final = frozenset(
    {"list", "tuple", "set", "frozenset", "deque", "dict", "ordered-dict", "counter", "frozendict"}
)
# What is below them is not a schema, or not one that validates.
OPAQUE: Final = frozenset({"default", "expected", "metadata", "serialization", "config"})
# These map names that others chose, those of fields and tags, to schemas.
BY_NAME: Final = frozenset({"fields", "choices"})


def fail_fast(schema: CoreSchema) -> CoreSchema:
    """Return a copy of a core schema in which every container fails at its first wrong item."""
    return cast("CoreSchema", _fail_fast(schema))


def fail_fast_validator(annotation: object) -> SchemaValidator:
    """Return a validator of a type that fails at the first wrong item of every container in it.

    Raises:
        PydanticUserError: pydantic cannot validate the type.
    """
    return validator_of(fail_fast_schema(annotation))


def fail_fast_schema(annotation: object) -> CoreSchema:
    """Return the core schema of such a validator; raises what `fail_fast_validator` raises."""
    adapter = TypeAdapter(cast("type[object]", annotation))
    # A model with `defer_build` has none before it is needed.
    if not isinstance(adapter.core_schema, dict):
        adapter.rebuild(force=True)
    return fail_fast(adapter.core_schema)


def validator_of(schema: CoreSchema) -> SchemaValidator:
    """Return the validator of a core schema, to its last part."""
    # Without `_use_prebuilt=False` the validators of nested models are those that pydantic has built for their classes.
    return SchemaValidator(schema, _use_prebuilt=False)


def _fail_fast(node: object) -> object:
    if isinstance(node, list | tuple):
        return type(node)(map(_fail_fast, node))  # a choice of a union may be a pair of schema and label
    if not isinstance(node, dict):
        return node
    copy = {key: _member(key, value) for key, value in node.items()}
    if copy.get("type") in CONTAINERS:
        copy["fail_fast"] = True
    return copy


def _member(key: str, value: object) -> object:
    if key in OPAQUE:
        return value
    if key in BY_NAME and isinstance(value, dict):
        return {name: _fail_fast(schema) for name, schema in value.items()}
    return _fail_fast(value)
