"""The fields of a form at a terminal: hints for the user, and parsing the text that the user enters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import TypeAlias

from ...types import (
    BooleanSchema,
    ElicitValue,
    LegacyTitledEnumSchema,
    NumberSchema,
    PrimitiveSchemaDefinition,
    StringSchema,
    TitledMultiSelectEnumSchema,
    TitledSingleSelectEnumSchema,
    UntitledMultiSelectEnumSchema,
    UntitledSingleSelectEnumSchema,
)

SingleChoice: TypeAlias = UntitledSingleSelectEnumSchema | TitledSingleSelectEnumSchema | LegacyTitledEnumSchema
MultipleChoice: TypeAlias = UntitledMultiSelectEnumSchema | TitledMultiSelectEnumSchema

YES = ("y", "yes", "true", "1")
NO = ("n", "no", "false", "0")
# Deliberately loose: only a mail server knows whether an address is valid.
EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")  # RFC 3986 section 3: a scheme, a colon, no spaces
CHECKS: Mapping[str, Callable[[str], object]] = {
    "email": EMAIL.fullmatch,
    "uri": URI.fullmatch,
    # Python also parses 20260728 and 2026-W31-2, which RFC 3339 does not have; and a date as a date and time.
    "date": lambda text: date.fromisoformat(text) and len(text) == len("2026-07-28"),
    "date-time": lambda text: datetime.fromisoformat(text) and "T" in text.upper(),
}
"""Return something true for a text of the format; something false, or raise `ValueError`, for another."""
FORMATS = {"email": "an e-mail address", "uri": "a URI", "date": "a date", "date-time": "a date and time"}


def hint(field: PrimitiveSchemaDefinition) -> str:
    """Return what may be entered, in few words."""
    match field:
        case BooleanSchema():
            return "y or n"
        case NumberSchema(type=kind):
            return f"{'a whole number' if kind == 'integer' else 'a number'}{bounds(field.minimum, field.maximum)}"
        case StringSchema():
            size = bounds(field.min_length, field.max_length)
            return f"{FORMATS.get(field.format or '', 'text')}{f',{size} characters' if size else ''}"
        case UntitledMultiSelectEnumSchema() | TitledMultiSelectEnumSchema():
            return f"{options(choices(field))}; separate several by commas"
        case _:
            return options(choices(field))


def default_text(field: PrimitiveSchemaDefinition) -> str | None:
    """Return the default as a user would enter it, or None."""
    match field.default:
        case None:
            return None
        case bool() as yes:
            return "y" if yes else "n"
        case list() as several:
            return ", ".join(several)
        case value:
            return str(value)


def read_field(field: PrimitiveSchemaDefinition, text: str, *, by_number: bool = False) -> ElicitValue:
    """Return the value of a text for this field.

    Args:
        by_number: a choice may be named by its number, too.

    Raises:
        ValueError: it does not match the field's schema; the message says what to enter.
    """
    match field:
        case BooleanSchema():
            return read_yes(text)
        case NumberSchema():
            return read_number(field, text)
        case StringSchema():
            return read_text(field, text)
        case UntitledMultiSelectEnumSchema() | TitledMultiSelectEnumSchema():
            return read_choices(field, text, by_number=by_number)
        case _:
            return read_choice(choices(field), text, by_number=by_number)


def choices(field: SingleChoice | MultipleChoice) -> Mapping[str, str]:
    """Return the values to choose from, each with its label."""
    match field:
        case UntitledSingleSelectEnumSchema(enum=values):
            return {value: value for value in values}
        case UntitledMultiSelectEnumSchema(items=items):
            return {value: value for value in items.enum}
        # Labels of another number than the values cannot be assigned, so they are ignored.
        case LegacyTitledEnumSchema(enum=values, enum_names=names):
            return dict(zip(values, names if names and len(names) == len(values) else values, strict=True))
        case TitledSingleSelectEnumSchema(one_of=titled):
            return {option.const: option.title for option in titled}
        case TitledMultiSelectEnumSchema(items=items):
            return {option.const: option.title for option in items.any_of}


def choice_lines(field: PrimitiveSchemaDefinition) -> list[str]:
    """Return what is shown of each choice of a field; nothing for a field without choices."""
    if isinstance(field, BooleanSchema | NumberSchema | StringSchema):
        return []
    return [options({value: label}) for value, label in choices(field).items()]


def number_hint(field: PrimitiveSchemaDefinition) -> str:
    """Return what may be entered where the choices are numbered."""
    many = isinstance(field, UntitledMultiSelectEnumSchema | TitledMultiSelectEnumSchema)
    return "numbers or names, separated by commas" if many else "a number or a name"


def options(labelled: Mapping[str, str]) -> str:
    return ", ".join(value if label == value else f"{value} ({label})" for value, label in labelled.items())


def bounds(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" {low:g} to {high:g}"
    return f" at least {low:g}" if low is not None else f" at most {high:g}" if high is not None else ""


def read_yes(text: str) -> bool:
    word = text.strip().lower()
    if word not in YES + NO:
        raise ValueError("please answer y or n")
    return word in YES


def read_number(field: NumberSchema, text: str) -> int | float:
    try:
        value = int(text) if field.type == "integer" else float(text)
    except ValueError:
        value = math.nan
    low = -math.inf if field.minimum is None else field.minimum
    high = math.inf if field.maximum is None else field.maximum
    # NaN fails the comparison. Infinity would pass a field without bounds, but JSON cannot hold it.
    if not low <= value <= high or value in (-math.inf, math.inf):
        raise ValueError(f"please enter {hint(field)}")
    return value


def read_text(field: StringSchema, text: str) -> str:
    if not (field.min_length or 0) <= len(text) <= (len(text) if field.max_length is None else field.max_length):
        raise ValueError(f"please enter {hint(field)}; this has {len(text)}")
    if not fits(field.format, text):
        raise ValueError(f"please enter {hint(field)}")
    return text


def fits(wanted: str | None, text: str) -> bool:
    """Return whether a text plausibly has a format.

    Lenient where the format is complex: the server validates the answer, and this only catches typing errors.
    """
    check = CHECKS.get(wanted or "")
    try:
        return check is None or bool(check(text))
    except ValueError:
        return False


def read_choice(labelled: Mapping[str, str], text: str, *, by_number: bool = False) -> str:
    """Return the value that a text means: its exact spelling, or else the only one it matches without regard to case."""
    word = text.strip()
    # Exact first: an enum may have both "A" and "a".
    if word in labelled:
        return word
    meant = [value for value, label in labelled.items() if word.lower() in (value.lower(), label.lower())]
    # After the names: a choice may be called 2, and not be the second.
    if not meant and by_number and word.isdecimal() and 0 < int(word) <= len(labelled):
        return [*labelled][int(word) - 1]
    if len(meant) != 1:
        raise ValueError(f"please choose one of: {options(labelled)}")
    return meant[0]


def read_choices(field: MultipleChoice, text: str, *, by_number: bool = False) -> list[str]:
    chosen = [read_choice(choices(field), word, by_number=by_number) for word in text.split(",") if word.strip()]
    low, high = field.min_items or 0, len(chosen) if field.max_items is None else field.max_items
    if not low <= len(chosen) <= high:
        raise ValueError(f"please choose{bounds(field.min_items, field.max_items)} of: {options(choices(field))}")
    # The specification has no `uniqueItems`, but a set of choices is what the form shows.
    if len(set(chosen)) != len(chosen):
        raise ValueError("please choose each one once only")
    return chosen
