"""A Sphinx extension for the reference: where a name is documented, and what of a class is shown."""

from __future__ import annotations

from functools import cache
from typing import Any

from docutils import nodes
from public_names import PublicName, documented
from pydantic import BaseModel
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

NOT_OURS = frozenset(dir(BaseModel)) | {"model_config"}


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
    """Lead a reference to where a value is defined, such as `trio_mcp.server.server.Server`, to where it is documented."""
    if node.get("refdomain") != "py":
        return None
    target: str = node["reftarget"]
    place = places().get(target) or places().get(target.rsplit(".", 1)[-1])
    domain = env.domains.python_domain
    for path in filter(None, (place, target)):
        if path in domain.objects:
            entry = domain.objects[path]
            link = nodes.reference("", "", internal=True, refuri=app.builder.get_relative_uri(node["refdoc"], entry.docname))
            link["refuri"] += f"#{entry.node_id}"
            link.append(content)
            return link
    # `name` in a docstring is a link if there is such a name, and code if not.
    return content if node.get("reftype") == "obj" else None


def signature(
    app: Sphinx, what: str, name: str, value: object, options: Any, arguments: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    """Show no signature of a model: its fields are listed below it."""
    is_model = isinstance(value, type) and issubclass(value, BaseModel)
    return ("", None) if is_model else None


def skip(app: Sphinx, what: str, name: str, value: object, skipped: bool, options: Any) -> bool | None:
    """Leave out what a model has from pydantic."""
    return True if name in NOT_OURS else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
