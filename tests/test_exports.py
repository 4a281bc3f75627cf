"""The public names of each package: all of them listed, in order, and nothing else."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
from pathlib import Path
from types import FunctionType, ModuleType
from typing import get_type_hints

import public_names
import pytest
from naming import naming

import trio_mcp
import trio_mcp_transports
from trio_mcp import import_hints
from trio_mcp.model_formats import api_types


def packages() -> list[str]:
    roots: list[ModuleType] = [trio_mcp, trio_mcp_transports]
    found = [root.__name__ for root in roots]
    for root in roots:
        below = pkgutil.walk_packages(root.__path__, f"{root.__name__}.")
        found += [module.name for module in below if module.ispkg and "._" not in module.name]
    return found


def rank(name: str) -> tuple[int, str]:
    """Constants first, then classes, then functions: the order that ruff (RUF022) keeps."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def ours(package: ModuleType) -> set[str]:
    """The public names that the package holds, without modules and without what it borrows from other projects."""
    return {
        name
        for name, value in vars(package).items()
        if not name.startswith("_")
        and name not in {"TYPE_CHECKING", "annotations"}
        and not isinstance(value, ModuleType)
        and getattr(value, "__module__", "trio_mcp").startswith("trio_mcp")
    }


@pytest.mark.parametrize("name", packages())
def test_all_is_sorted_without_repetition_and_complete(name: str) -> None:
    package = importlib.import_module(name)
    listed: list[str] = getattr(package, "__all__", [])
    assert listed == sorted(set(listed), key=rank)
    assert [name for name in listed if not hasattr(package, name)] == []
    assert ours(package) <= set(listed)


def test_the_package_shows_its_public_names_and_no_others() -> None:
    assert {name for name in dir(trio_mcp) if not name.startswith("__")} == set(trio_mcp.__all__)


ELSEWHERE = [
    ("FastMCP", "Server"),
    ("Depends", "Provide"),
    ("Message", "PromptMessage"),
    ("ToolAnnotations", "trio_mcp.types"),
    ("SessionLost", "trio_mcp.errors"),
    ("Tls", "trio_mcp.http"),
    ("MockClient", "trio_mcp.testing"),
    ("from_openapi", "trio_mcp.openapi"),
    ("asgi_app", "trio_mcp_transports.http"),
]


@pytest.mark.parametrize(("name", "written"), ELSEWHERE)
def test_a_name_that_is_elsewhere_is_answered_with_what_to_write(name: str, written: str) -> None:
    assert not hasattr(trio_mcp, name)
    with pytest.raises(ImportError, match=naming(name, written)):
        exec(f"from trio_mcp import {name}")
    with pytest.raises(AttributeError, match=naming(name, written)):
        getattr(trio_mcp, name)


def test_the_hints_know_every_package_of_the_reference() -> None:
    assert [trio_mcp.__name__, *import_hints.PACKAGES] == public_names.packages()
    assert set(import_hints.OF_OTHERS).isdisjoint(trio_mcp.__all__)


@pytest.mark.parametrize("name", ["exceptions", "prompts", *import_hints.MODULES])
def test_a_module_that_other_libraries_have_is_answered_with_what_to_write(name: str) -> None:
    hint = import_hints.MODULES[name]
    with pytest.raises(ModuleNotFoundError, match=naming(f"trio_mcp.{name}", hint)):
        importlib.import_module(f"trio_mcp.{name}")
    with pytest.raises(ImportError, match=naming(hint)):
        exec(f"from trio_mcp.{name} import Something")


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        ("trio_mcp.types", "Image", "it is in trio_mcp"),
        ("trio_mcp.testing", "Client", "it is in trio_mcp"),
        ("trio_mcp.server.middleware", "Middleware", "@server.middleware"),
        ("trio_mcp.server.server", "FastMCP", "write Server"),
        ("trio_mcp.server.lifespan", "lifespan", "@asynccontextmanager"),
        ("trio_mcp.client.sampling", "SamplingMessage", "it is in trio_mcp.types"),
        ("trio_mcp.client.sampling", "SamplingParams", "write CreateMessageRequestParams"),
        ("trio_mcp.auth", "JWTVerifier", "write jwt"),
        ("trio_mcp.auth", "StaticTokenVerifier", "write static"),
    ],
)
def test_a_name_of_another_module_is_answered_with_what_to_write(module: str, name: str, hint: str) -> None:
    with pytest.raises(ImportError, match=naming(name, module, hint)):
        exec(f"from {module} import {name}")


def test_any_other_name_of_another_module_is_missing_as_ever() -> None:
    for module in ("trio_mcp.server.server", "trio_mcp.auth"):
        with pytest.raises(ImportError, match=f"^cannot import name 'Nothing' from '{module}' .*py"):
            exec(f"from {module} import Nothing")
        assert not hasattr(importlib.import_module(module), "Nothing")
    assert not hasattr(trio_mcp.auth, "JWTVerifier")


def test_any_other_module_is_missing_as_ever() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'trio_mcp.nothing'$"):
        importlib.import_module("trio_mcp.nothing")
    assert importlib.util.find_spec("trio_mcp.nothing") is None


def test_any_other_name_is_missing_as_ever() -> None:
    with pytest.raises(ImportError, match=r"^cannot import name 'nothing' from 'trio_mcp' \(.*__init__\.py\)$"):
        exec("from trio_mcp import nothing")
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        trio_mcp.nothing  # noqa: B018


def type_checked(package: str) -> list[tuple[str, str]]:
    """What type checkers see of a package that loads its names late: the module and the name of each, or a module alone."""
    source = importlib.import_module(package).__file__
    assert source is not None
    blocks = [node for node in ast.parse(Path(source).read_text()).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom) and node.level == 1]
    return [(node.module or "", alias.name) for node in imports for alias in node.names]


@pytest.mark.parametrize("name", [name for name in packages() if type_checked(name)])
def test_a_name_that_is_loaded_late_is_the_one_that_type_checkers_see(name: str) -> None:
    package = importlib.import_module(name)
    for module, each in type_checked(name):
        inside = importlib.import_module(f"{name}.{module or each}")
        assert getattr(package, each) is (getattr(inside, each) if module else inside)
    with pytest.raises(AttributeError, match="no_such_name"):
        package.no_such_name  # noqa: B018


def annotated(package: ModuleType) -> list[tuple[str, object]]:
    """The public classes and functions of a package, and the public methods of the classes."""
    found: list[tuple[str, object]] = []
    for name in getattr(package, "__all__", []):
        value = getattr(package, name)
        if not isinstance(value, type | FunctionType):
            continue
        found.append((name, value))
        members = vars(value).items() if isinstance(value, type) else ()
        found += [(f"{name}.{key}", each) for key, each in members if isinstance(each, FunctionType) and key[0] != "_"]
    return found


@pytest.mark.parametrize("name", ["trio_mcp", "trio_mcp.server", "trio_mcp.server.sampling", "trio_mcp.session"])
def test_the_annotations_of_public_names_can_be_read_at_run_time(name: str) -> None:
    # Programs that make documentation or schemas of our signatures do so. A name for type checkers only cannot be read then.
    unreadable = []
    for label, each in annotated(importlib.import_module(name)):
        try:
            get_type_hints(each)
        except NameError as error:
            # The types of the libraries of other people, which are there for those who have them.
            if error.name not in api_types.__all__:
                unreadable.append(f"{label}: {error}")
    assert unreadable == []
