"""Expansion of URI templates (RFC 6570, section 3.2): the oracle for matching, which is its inverse.

The product only matches. This is a direct transcription of the RFC's algorithm over the product's parser, for strings and lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias
from urllib.parse import quote

from trio_mcp.protocol.uri.expressions import Expression, Operator, Variable, parse_template

Value: TypeAlias = str | Sequence[str]
"""A string or a list; an empty list is undefined (RFC 6570, 2.3)."""

RESERVED = ":/?#[]@!$&'()*+,;="
TRIPLET = re.compile(r"(%[0-9A-Fa-f]{2})")


def expand(template: str, values: Mapping[str, Value]) -> str:
    """Return the URI; a variable without a value leaves nothing behind."""
    return "".join(part if isinstance(part, str) else _fill(part, values) for part in parse_template(template))


def _fill(expression: Expression, values: Mapping[str, Value]) -> str:
    operator = expression.operator
    texts = [
        _written(operator, variable, values[variable.name])
        for variable in expression.variables
        if values.get(variable.name) not in (None, [])
    ]
    return operator.first + operator.separator.join(texts) if texts else ""


def _written(operator: Operator, variable: Variable, value: Value) -> str:
    if isinstance(value, str):
        return _assigned(operator, variable.name, _encoded(value[: variable.prefix], operator.reserved))
    items = [_encoded(item, operator.reserved) for item in value]
    if not variable.explode:
        return _assigned(operator, variable.name, ",".join(items))
    return operator.separator.join(_assigned(operator, variable.name, item) for item in items)


def _assigned(operator: Operator, name: str, text: str) -> str:
    if not operator.named:
        return text
    return f"{name}={text}" if text else name + operator.if_empty


def _encoded(text: str, reserved: bool) -> str:
    if not reserved:
        return quote(text, safe="")
    return "".join(piece if at % 2 else quote(piece, safe=RESERVED) for at, piece in enumerate(TRIPLET.split(text)))
