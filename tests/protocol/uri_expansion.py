"""Expansion of URI templates (RFC 6570, section 3.2): the oracle for matching, which is its inverse.

The product only matches. This is a direct transcription of the RFC's algorithm over the product's parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import quote

from trio_mcp.protocol.uri.expressions import Expression, Operator, Variable, parse_template

Value: TypeAlias = str | Sequence[str] | Mapping[str, str]
"""A string, a list, or an associative array; an empty list or array is undefined (RFC 6570, 2.3)."""

RESERVED = ":/?#[]@!$&'()*+,;="
TRIPLET = re.compile(r"(%[0-9A-Fa-f]{2})")


def expand(template: str, values: Mapping[str, Value]) -> str:
    """Return the URI; a variable without a value leaves nothing behind."""
    return "".join(part if isinstance(part, str) else _fill(part, values) for part in parse_template(template))


def _fill(expression: Expression, values: Mapping[str, Value]) -> str:
    operator = expression.operator
    texts = [
        _written(operator, variable, value)
        for variable in expression.variables
        if (value := values.get(variable.name)) is not None and (isinstance(value, str) or len(value))
    ]
    return operator.first + operator.separator.join(texts) if texts else ""


def _written(operator: Operator, variable: Variable, value: Value) -> str:
    if isinstance(value, str):
        return _assigned(operator, variable.name, _encoded(value[: variable.prefix], operator.reserved))
    if variable.prefix is not None:
        raise ValueError(f"The variable {variable.name} takes the first characters of a string, and its value is none.")
    if not variable.explode:
        items = value if not isinstance(value, Mapping) else [item for pair in value.items() for item in pair]
        return _assigned(operator, variable.name, ",".join(_encoded(item, operator.reserved) for item in items))
    return operator.separator.join(_exploded(operator, variable.name, value))


def _exploded(operator: Operator, name: str, value: Sequence[str] | Mapping[str, str]) -> Iterator[str]:
    if not isinstance(value, Mapping):
        for item in value:
            yield _assigned(operator, name, _encoded(item, operator.reserved))
        return
    for key, item in value.items():
        text, encoded = _encoded(item, operator.reserved), _encoded(key, operator.reserved)
        yield _assigned(operator, encoded, text) if operator.named else f"{encoded}={text}"


def _assigned(operator: Operator, name: str, text: str) -> str:
    if not operator.named:
        return text
    return f"{name}={text}" if text else name + operator.if_empty


def _encoded(text: str, reserved: bool) -> str:
    if not reserved:
        return quote(text, safe="")
    return "".join(piece if at % 2 else quote(piece, safe=RESERVED) for at, piece in enumerate(TRIPLET.split(text)))
