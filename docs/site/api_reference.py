"""A Sphinx extension for the reference: how docstrings are read, what of a class is shown, and where a name leads."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from inspect import cleandoc
from itertools import takewhile
from pathlib import Path
from textwrap import dedent
from typing import Any, Final
from zlib import crc32

from docutils import nodes
from public_names import PublicName, documented
from reference_pages import is_model
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.util.typing import ExtensionMetadata

SECTIONS = ("Args:", "Attributes:", "Raises:", "Returns:", "Yields:")
ATTRIBUTE = re.compile(r"^(\.\. attribute:: \w+\n)((?:(?!\.\. attribute::).*\n)*?)   :type: (.*)$", re.MULTILINE)
"""An attribute as napoleon writes it, with its type below its description."""


# docstrings


ITEM: Final = re.compile(r" *- \S")
"""The first line of an item of a list."""


def read_docstring(app: Sphinx, what: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """Turn a docstring into reStructuredText: its examples, which are indented as in Markdown, and its sections."""
    if what == "data" and [*lines, ""] == [*cleandoc(value.__doc__ or "").splitlines(), ""] + [""] * (
        lines[-1:] == [""]
    ):
        # An alias of a type or a constant has none; this is that of `dict`, for example.
        lines.clear()
    # reStructuredText has no `name`s.
    lines[:] = marked_examples(with_lists([re.sub(r"(`[^`]+`)(?=\w)", r"\1\\ ", line) for line in lines]))
    if what not in {"attribute", "data", "property"}:
        # Not for attributes, where napoleon takes what stands before a colon for a type.
        text = "\n".join(GoogleDocstring(lines, Config(), app, what, name, value, options).lines())
        lines[:] = ATTRIBUTE.sub(r"\1   :type: \3\n\2", text).split("\n")


def with_lists(lines: list[str]) -> list[str]:
    """Return the lines with an empty one before each list: reStructuredText takes its items for text otherwise."""
    found: list[str] = []
    for line in lines:
        before = found[-1] if found else ""
        if ITEM.match(line) and before and not ITEM.match(before) and not before.startswith(" " * (indent(line) + 1)):
            found.append("")
        found.append(line)
    return found


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def marked_examples(lines: list[str]) -> list[str]:
    """Return the lines with a directive before each indented block that is not in a section."""
    marked, begins = [], set(beginnings(lines))
    for place, line in enumerate(lines):
        if place in begins:
            marked += [f".. code-block:: {language(lines[place:])}", ""]
        marked.append(line)
    return marked


def language(lines: list[str]) -> str:
    """Return the language of the block that begins the lines."""
    block = takewhile(lambda line: not line or line.startswith("    "), lines)
    try:
        ast.parse(dedent("\n".join(block)))
    except SyntaxError:
        return "text"
    return "python"


def beginnings(lines: list[str]) -> Iterator[int]:
    """Yield the numbers of the lines that begin an example."""
    inside, after_blank, in_section = False, True, False
    for place, line in enumerate(lines):
        indented = line.startswith("    ")
        if line and not indented:
            in_section = line in SECTIONS
            inside = False
        if indented and after_blank and not inside and not in_section:
            inside = True
            yield place
        after_blank = not line


# what is shown


def signature(
    app: Sphinx, what: str, name: str, value: object, options: Any, arguments: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Show no signature of a model, whose fields are listed below it, and no default that is not Python."""
    if is_model(value):
        return "", None
    return None if arguments is None else (re.sub(r"<[\w. ]+>", "...", arguments), returns)


# references


@cache
def places() -> dict[str, str]:
    """Return where each public value is documented, by where it is defined and by its name alone."""
    found: dict[str, str] = {}
    for names in documented().values():
        for each in names:
            found.setdefault(each.name, each.path)
            found.setdefault(defined(each), each.path)
    return found


def defined(each: PublicName) -> str:
    return f"{getattr(each.value, '__module__', each.package)}.{getattr(each.value, '__qualname__', each.name)}"


def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement) -> nodes.Node | None:
    """Lead a reference to where a value is documented. What is not public is shown as code."""
    if node.get("refdomain") != "py":
        return None
    target: str = node["reftarget"]
    entry = env.domains.python_domain.objects.get(places().get(target, ""))
    if entry is not None:
        link = nodes.reference("", "", content, internal=True)
        link["refuri"] = f"{app.builder.get_relative_uri(node['refdoc'], entry.docname)}#{entry.node_id}"
        return link
    # `name` in a docstring may be anything. In a signature it is a type, which exists, or a variable for types.
    return content if node.get("reftype") == "obj" or is_internal(target) else None


@cache
def is_internal(target: str) -> bool:
    """Return whether one of our modules has a value of this name."""
    # An annotation that is a text names a module by less than its path, such as `server.CallMiddleware`.
    module, _, name = f".{target}".rpartition(".")
    with suppress(ImportError, ValueError):
        import_module(module[1:])
    loaded = [
        each for path, each in list(sys.modules.items()) if path.startswith("trio_mcp") and f".{path}".endswith(module)
    ]
    return any(hasattr(each, name) for each in loaded)


def setup(app: Sphinx) -> ExtensionMetadata:
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", signature)
    app.connect("missing-reference", resolve)
    # Pages that an older state of this code has read are read again.
    code = b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
    return {"env_version": crc32(code), "parallel_read_safe": True, "parallel_write_safe": True}
