"""The pages of the reference, as directives for Sphinx, which reads the docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import TypeGuard

import public_names
from public_names import PublicName
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from sphinx.util.typing import stringify_annotation


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page."""
    for package in public_names.packages():
        yield f"reference/{package}.rst", page(package)


def page(package: str) -> str:
    """Return the page of a package."""
    blocks = [f"{package}\n{'=' * len(package)}", f".. automodule:: {package}\n   :no-members:"]
    blocks += [entry(each) for each in sorted(public_names.documented()[package], key=importance)]
    if others := public_names.elsewhere(package):
        links = "\n".join(f"* :py:obj:`{each.path}`" for each in others)
        blocks += [f".. rubric:: Also in {package}", links]
    return "\n\n".join(blocks) + "\n"


def importance(each: PublicName) -> tuple[int, str]:
    """Return what orders the names of a page: those that most pages of the documentation mention come first."""
    return -sum(each.name in words for words in public_names.words_of_pages().values()), each.name


def entry(each: PublicName) -> str:
    """Return the directive for a name."""
    lines = [f".. {directive(each.value)}:: {each.path}"]
    see = ["", f"   See {', '.join(public_names.explained_in(each))}."]
    if is_model(each.value):
        return "\n".join(
            [
                *lines,
                f"   :exclude-members: {', '.join(['model_config', *each.value.model_fields])}",
                *see,
                *fields(each.value),
            ]
        )
    if described := attributes(each.value):
        # The section of the docstring has them.
        lines.append(f"   :exclude-members: {', '.join(described)}")
    if set(public_names.methods(each.value)) - set(getattr(each.value, "__dict__", ())):
        # Of bases that have no entry.
        lines.append(f"   :inherited-members: {', '.join(sorted(others(each.value)))}")
    return "\n".join([*lines, *see])


def directive(value: object) -> str:
    """Return the directive of autodoc that documents a value."""
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if inspect.isroutine(value) else "autodata"


def others(value: object) -> set[str]:
    """Return the bases of a class whose methods are not repeated with it: those of other projects, and those with an entry."""
    public = {each.name for names in public_names.documented().values() for each in names if each.value is not value}
    bases = {base for base in getattr(value, "__mro__", ()) if base is not value}
    return {base.__name__ for base in bases if base.__name__ in public or not base.__module__.startswith("trio_mcp")}


def attributes(value: object) -> list[str]:
    """Return the attributes that the docstring of a class describes."""
    text = inspect.getdoc(value) if inspect.isclass(value) else None
    section = re.search(r"^Attributes:\n((?: .*\n?|\n)*)", text or "", re.MULTILINE)
    names = re.findall(r"^    (\w+(?:, \w+)*): ", section[1], re.MULTILINE) if section else []
    return [name for each in names for name in each.split(", ")]


# models


def is_model(value: object) -> TypeGuard[type[BaseModel]]:
    """Return whether this is a model of MCP."""
    return inspect.isclass(value) and issubclass(value, BaseModel)


def fields(model: type[BaseModel]) -> Iterator[str]:
    """Yield the lines that list the fields of a model, without the validators in their annotations."""
    model.model_rebuild()
    for name, field in model.model_fields.items():
        yield from ("", f"   .. py:attribute:: {name}", f"      :type: {type_of(field)}")
        if not field.is_required():
            yield f"      :value: {field.get_default(call_default_factory=True)!r}"


def type_of(field: FieldInfo) -> str:
    """Return the type of a field, as Sphinx writes types."""
    return without_metadata(stringify_annotation(field.annotation, "fully-qualified-except-typing"))


def without_metadata(text: str) -> str:
    """Return a type without `Annotated[..., metadata]`."""
    while (begin := text.find("Annotated[")) >= 0:
        start = begin + len("Annotated[")
        comma, end = ends(text, start)
        text = text[:begin] + text[start:comma] + text[end + 1 :]
    return text


def ends(text: str, start: int) -> tuple[int, int]:
    """Return where the first argument of a subscript ends, and where the subscript does."""
    depth, comma = 0, -1
    for place in range(start, len(text)):
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(text[place], 0)
        if depth == 0 and text[place] == "," and comma < 0:
            comma = place
        if depth < 0:
            return (comma if comma >= 0 else place), place
    raise ValueError(f"no subscript ends in {text}")
