"""What a reload cannot apply is named: C extensions of the project, and installed packages, that have changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest

from trio_mcp.cli.dev.file_watch import Restarts
from trio_mcp.cli.dev.project_modules import ProjectModules
from trio_mcp.cli.targets.loading import project_roots


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages; the module of one of them is loaded."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    for name in ("restarts_loaded", "restarts_unused"):
        install(site, name, "1.0")
    monkeypatch.setitem(sys.modules, "restarts_loaded", ModuleType("restarts_loaded"))
    return site


def install(site: Path, name: str, version: str, *, module: str | None = None) -> None:
    for old in site.glob(f"{name}-*.dist-info"):
        (old / "RECORD").unlink()
        old.rmdir()
    place = site / f"{name}-{version}.dist-info"
    place.mkdir()
    (place / "RECORD").write_text(f"{module or name}/__init__.py,,\n")
    # Since CPython 3.12, `importlib.metadata` leaves files out that are listed and not there.
    package = site / (module or name)
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()


def test_an_installed_package_that_is_loaded_is_named_with_its_versions(site: Path) -> None:
    restarts = Restarts(dict)
    assert restarts.changed() == []
    install(site, "restarts_unused", "2.0")
    install(site, "restarts_new", "1.0")
    assert restarts.changed() == []
    install(site, "restarts_loaded", "2.0")
    assert restarts.changed() == ["the package restarts_loaded (1.0 -> 2.0)"]


def test_a_package_whose_module_has_another_name_is_found_by_its_files(site: Path) -> None:
    install(site, "restarts_other", "1.0", module="restarts_loaded")
    restarts = Restarts(dict)
    install(site, "restarts_other", "1.1", module="restarts_loaded")
    assert restarts.changed() == ["the package restarts_other (1.0 -> 1.1)"]


def test_a_package_that_was_removed_is_named(site: Path) -> None:
    restarts = Restarts(dict)
    (site / "restarts_loaded-1.0.dist-info" / "RECORD").unlink()
    (site / "restarts_loaded-1.0.dist-info").rmdir()
    assert restarts.changed() == ["the package restarts_loaded (1.0 -> removed)"]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "project"
    folder.mkdir()
    yield folder
    sys.modules.pop("restarts_fast", None)


def test_a_c_extension_of_the_project_is_named_and_one_that_is_installed_is_not(project: Path) -> None:
    modules = ProjectModules([project])
    file = project / f"restarts_fast{EXTENSION_SUFFIXES[0]}"
    file.write_bytes(b"1")
    module = ModuleType("restarts_fast")
    module.__file__ = str(file)
    restarts = Restarts(modules.extensions)
    restarts.note_loaded()
    assert project not in restarts.folders()
    sys.modules["restarts_fast"] = module
    restarts.note_loaded()
    assert project in restarts.folders()
    assert restarts.changed() == []
    file.write_bytes(b"12")
    assert restarts.changed() == [f"the C extension restarts_fast ({file.name})"]
    assert all("site-packages" not in str(path) for path in modules.extensions().values())


def test_the_project_of_a_file_is_the_folder_with_its_pyproject(tmp_path: Path) -> None:
    package = tmp_path / "src" / "shop"
    package.mkdir(parents=True)
    file = package / "server.py"
    for each in (file, package / "__init__.py"):
        each.write_text("")
    assert project_roots(file) == [tmp_path / "src"]
    (tmp_path / "pyproject.toml").write_text("")
    assert project_roots(file) == [tmp_path]


def test_what_is_installed_in_the_folder_of_a_project_is_not_of_it(tmp_path: Path) -> None:
    modules = ProjectModules([tmp_path])
    assert modules.owns(tmp_path / "app.py")
    assert modules.owns(tmp_path / "package" / "module.py")
    assert not modules.owns(tmp_path / ".venv" / "lib" / "python3" / "site-packages" / "trio" / "__init__.py")
    assert not modules.owns(tmp_path.parent / "app.py")
