"""`trio-mcp bundle`: write an MCPB file, which hosts install with a click."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from importlib.metadata import version as installed
from pathlib import Path
from typing import Final, TypedDict, Unpack

import click

from ...base.regular_files import MAX_CONFIGURATION, read_regular, replacing
from ...base.values import one_line
from ...server import Server
from ..arguments import json_option, target_argument
from ..command import CommandError, Status, command
from ..targets.loading import load_python
from ..targets.project import Project, kind_of, project_of
from ..targets.target import PythonTarget, code_of, read_target
from ..terminal.output import note, show_json

EXAMPLES = """\
examples:
  trio-mcp bundle app.py
  trio-mcp bundle app.py:make_server --secret SHOP_KEY --output shop.mcpb
  trio-mcp bundle src/shop/server.py --exclude 'tests/*' --include goods.db
  trio-mcp bundle shop.server
  trio-mcp bundle cursor:shop

The bundle has the folder of the project (the nearest one with a pyproject.toml, or else that of the file) and a manifest of
MCPB 0.4, but no packages: the host installs what pyproject.toml names, with uv. Left out are hidden files, environments,
caches, builds, links and what .mcpbignore or --exclude name; and keys, secrets and databases, unless --include names them.
Without a pyproject.toml one is written that needs trio-mcp and each --with. The files are listed as the bundle is written.
"""

SKIPPED: Final = ("__pycache__", "*.pyc", "node_modules", "venv", "dist", "build", "*.egg-info", "*.mcpb", "*.bak")
MAX_BYTES: Final = 100_000_000
"""Bytes of all files of a bundle; more than that is not a source of a server."""
PLATFORMS: Final = ("darwin", "linux")
"""Those that trio_mcp is made for; docs/platforms.md says which of them are tested."""
UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
"""What the name of a project, and of a file, does without."""
EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file, so that the same files are the same bundle."""


class Description(TypedDict):
    """What the options say of a bundle."""

    name: str | None
    version: str | None
    description: str | None
    author: str | None
    variables: Sequence[str]
    secrets: Sequence[str]


@command("bundle", EXAMPLES)
@target_argument
@click.option(
    "--output", type=click.Path(dir_okay=False), metavar="FILE", help="The bundle (default: NAME-VERSION.mcpb)."
)
@click.option("--name", metavar="NAME", help="The name (default: that of pyproject.toml, or of the server).")
@click.option("--version", metavar="VERSION", help="The version (default: that of pyproject.toml, or of the server).")
@click.option("--description", metavar="TEXT", help="What it does (default: that of pyproject.toml).")
@click.option("--author", metavar="NAME", help="Who made it (default: that of pyproject.toml).")
@click.option("--env", "variables", multiple=True, metavar="NAME", help="A variable that its user sets; repeatable.")
@click.option("--secret", "secrets", multiple=True, metavar="NAME", help="The same, with a secret value; repeatable.")
@click.option("--with", "packages", multiple=True, metavar="PACKAGE", help="A package that it needs; repeatable.")
@click.option("--exclude", "excluded", multiple=True, metavar="PATTERN", help="Files to leave out; repeatable.")
@click.option(
    "--include", "included", multiple=True, metavar="PATTERN", help="Keys, secrets or databases to pack; repeatable."
)
@json_option
def command_line(
    target: str,
    output: str | None,
    packages: Sequence[str],
    excluded: Sequence[str],
    included: Sequence[str],
    as_json: bool,
    debug: bool,  # noqa: ARG001
    **described: Unpack[Description],
) -> int:
    """Write an MCPB file with a server.

    TARGET is a Python file or a module (app.py, app.py:name, shop.server:name), where the name is that of a server or of a
    function that returns one; or a command in quotes or a server of a file (mcp.json:name) that starts one of these.
    """
    code = code_of(read_target(target))
    if code is None:
        raise CommandError(f"{target!r} is not a Python file or module: a bundle has the files of a server")
    server = load_python(code)
    path = file_of(code)
    project = project_for(code, path)
    if project.exists and packages:
        raise CommandError("pyproject.toml names the packages: leave out --with")
    check_needs(project)
    source = path.relative_to(project.folder).as_posix()
    manifest = manifest_of(server, project, code, source, described)
    bundle = Path(output or UNFIT.sub("-", f"{manifest['name']}-{manifest['version']}.mcpb"))
    never: dict[str, str] = {}
    found = files_of(project.folder, [*ignored(project.folder), *excluded], bundle.resolve(), never)
    files, unless_included = parted(found, included)
    check_included(included, [inside for inside, _ in files], never)
    made = {"manifest.json": json.dumps(manifest, indent=2, ensure_ascii=False)}
    if not project.exists:
        made["pyproject.toml"] = minimal_project(str(manifest["name"]), str(manifest["version"]), packages)
    if missing := {source, *["pyproject.toml"][: project.exists]} - {name for name, _ in files}:
        raise CommandError(f"{min(missing)} itself is left out: it is a link, or see --exclude and .mcpbignore")
    names = [*made, *(name for name, _ in files)]
    show_files(bundle, names, unless_included, never)
    write(bundle, made, files)
    if as_json:
        show_json({"file": str(bundle), "manifest": manifest, "files": names, "left_out": {**unless_included, **never}})
    else:
        note(f"wrote {bundle}")
    return Status.OK


def manifest_of(
    server: Server, project: Project, code: PythonTarget, source: str, described: Description
) -> dict[str, object]:
    """Return the manifest of a bundle.

    Args:
        source: the file of the server, below the folder of the project.

    Raises:
        CommandError: nothing says what the server does, or who made it.
    """
    name, variables, secrets = described["name"], described["variables"], described["secrets"]
    description = described["description"] or project.description or server.instructions
    author = described["author"] or project.author
    check_described(description, author)
    start_text = PythonTarget(code.source if isinstance(code.source, str) else Path(source), code.name).text
    return {
        "manifest_version": "0.4",
        "name": UNFIT.sub("-", name or project.name or server.identity.name).strip("-.") or "server",
        "display_name": server.identity.title or name or server.identity.name,
        "version": described["version"] or project.version or server.identity.version,
        "description": description,
        "author": {"name": author},
        **links(project),
        "server": {"type": "uv", "entry_point": source, "mcp_config": start(start_text, [*variables, *secrets])},
        **offers(server),
        "compatibility": {"platforms": [*PLATFORMS], "runtimes": {"python": project.requires_python or ">=3.11"}},
        **user_config(variables, secrets),
    }


def file_of(code: PythonTarget) -> Path:
    """Return the file of the server that was loaded. Raises `CommandError` for a module that is not one of a file."""
    if isinstance(code.source, Path):
        return code.source.resolve()
    file = getattr(sys.modules[code.source], "__file__", None)
    if file is None:
        raise CommandError(f"the module {code.source} has no file")
    return Path(file).resolve()


def project_for(code: PythonTarget, path: Path) -> Project:
    """Return the project of a file or module: the nearest one, or else that of the folder which the module is found in.

    Raises:
        CommandError: the module is installed, and so not in a project.
    """
    project = project_of(path)
    if isinstance(code.source, Path):
        return project
    if not project.exists:
        project = Project(Path.cwd().resolve())
    if "site-packages" in path.parts or not path.is_relative_to(project.folder):
        raise CommandError(
            f"the module {code.source} is installed, in {path.parent}: name the one in the folder of its project"
        )
    return project


def check_needs(project: Project) -> None:
    """Raise `CommandError` unless the project installs what starts its server."""
    if project.exists and not any(each.replace("_", "-").startswith("trio-mcp") for each in project.dependencies):
        raise CommandError(f"{project.folder / 'pyproject.toml'} does not name trio-mcp among its dependencies")


def check_described(description: str | None, author: str | None) -> None:
    """Raise `CommandError` unless it is known what the server does, and who made it: a manifest says both."""
    needs = [("a description", "--description TEXT", description), ("an author", "--author NAME", author)]
    missing = [(what, option) for what, option, value in needs if not value]
    if missing:
        what, options = " and ".join(each for each, _ in missing), " ".join(option for _, option in missing)
        raise CommandError(
            f"a bundle needs {what}: write {'it' if len(missing) == 1 else 'them'} into pyproject.toml, or give {options}"
        )


def links(project: Project) -> dict[str, object]:
    return {
        **({"repository": {"type": "git", "url": project.repository}} if project.repository else {}),
        **({"homepage": project.homepage} if project.homepage else {}),
        **({"license": project.license} if project.license else {}),
        **({"keywords": [*project.keywords]} if project.keywords else {}),
    }


def start(entry: str, variables: Sequence[str]) -> dict[str, object]:
    """Return how a host starts the server."""
    words = ["run", "--directory", "${__dirname}", "trio-mcp", "run", entry]
    env = {name: f"${{user_config.{name.lower()}}}" for name in variables}
    return {"command": "uv", "args": words, **({"env": env} if env else {})}


def offers(server: Server) -> dict[str, object]:
    """Return the tools, which a host shows before it installs a bundle."""
    models = [tool.model for tool in server.tools]
    tools = [{"name": each.name, **({"description": each.description} if each.description else {})} for each in models]
    return {"tools": tools} if tools else {"tools_generated": True}


def user_config(variables: Sequence[str], secrets: Sequence[str]) -> dict[str, object]:
    """Return what a host asks its user for."""
    asked = {
        name.lower(): {
            "type": "string",
            "title": name,
            "description": f"The value of {name}",
            "required": True,
            **({"sensitive": True} if name in secrets else {}),
        }
        for name in [*variables, *secrets]
    }
    return {"user_config": asked} if asked else {}


def ignored(folder: Path) -> list[str]:
    """Return the patterns of the file `.mcpbignore`."""
    try:
        lines = read_regular(folder / ".mcpbignore", MAX_CONFIGURATION).decode().splitlines()
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        # Without its patterns the bundle would have what its author wants left out.
        raise CommandError(f"{folder / '.mcpbignore'} cannot be read: {error}", Status.UNREACHABLE) from error
    return [line.strip().rstrip("/") for line in lines if line.strip() and not line.startswith("#")]


def files_of(
    folder: Path, patterns: Sequence[str], output: Path, left_out: dict[str, str]
) -> Iterator[tuple[str, Path]]:
    """Yield the files for a bundle with their names in it. Raises `CommandError` if they are too large together.

    Args:
        left_out: gets what those are by their names that no bundle has, and that no pattern names: hidden files, and links.
    """
    size = 0
    for root, folders, names in os.walk(folder):
        here = Path(root).relative_to(folder)
        kept = [
            each for each in sorted(folders) if is_kept((here / each).as_posix(), Path(root, each), patterns, left_out)
        ]
        folders[:] = kept
        for name in sorted(names):
            path = Path(root, name)
            inside = (here / name).as_posix()
            if path.resolve() == output or not is_kept(inside, path, patterns, left_out):
                continue
            size += path.stat().st_size
            if size > MAX_BYTES:
                raise CommandError(
                    f"{folder} has more than {MAX_BYTES} bytes of files: name what to leave out with --exclude"
                )
            yield inside, path


def is_kept(inside: str, path: Path, patterns: Sequence[str], left_out: dict[str, str]) -> bool:
    """Return whether a bundle may have a file or folder; `left_out` as in `files_of`."""
    name = path.name
    if inside == "manifest.json" or any(fnmatch(name, each) for each in SKIPPED) or matches(inside, patterns):
        return False
    if name.startswith("."):
        left_out[inside] = "hidden"
    # A link may point to a file outside the folder, which must not be published.
    elif path.is_symlink():
        left_out[inside] = "a link"
    elif not path.is_dir() and not path.is_file():
        left_out[inside] = "not a regular file"
    return inside not in left_out


def parted(files: Iterable[tuple[str, Path]], included: Sequence[str]) -> tuple[list[tuple[str, Path]], dict[str, str]]:
    """Return the files to pack, and what those are by their names that are left out: keys and databases that are not included.

    Raises:
        CommandError: one cannot be read.
    """
    packed: list[tuple[str, Path]] = []
    left_out: dict[str, str] = {}
    for inside, path in files:
        try:
            kind = None if matches(inside, included) else kind_of(path, MAX_BYTES)
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror or error}", Status.UNREACHABLE) from error
        if kind is None:
            packed.append((inside, path))
        else:
            left_out[inside] = kind
    return packed, left_out


def matches(inside: str, patterns: Sequence[str]) -> bool:
    """Return whether one of the patterns is that of a file, by its name or by its place in the folder."""
    name = inside.rpartition("/")[2]
    return any(fnmatch(inside, each) or fnmatch(name, each) for each in patterns)


def check_included(patterns: Sequence[str], packed: Iterable[str], left_out: Mapping[str, str]) -> None:
    """Raise `CommandError` for a pattern of `--include` that no packed file has.

    Args:
        left_out: what those are by their names that no bundle has.
    """
    names = [*packed]
    for pattern in patterns:
        if not any(matches(name, [pattern]) for name in names):
            why = next(
                (
                    f"{name} is {kind}, and no bundle has it"
                    for name, kind in left_out.items()
                    if matches(name, [pattern])
                ),
                "no file has that name, or --exclude, .mcpbignore or its folder leaves it out",
            )
            raise CommandError(f"--include {shlex.quote(pattern)} packs nothing: {why}")


def minimal_project(name: str, version: str, packages: Sequence[str]) -> str:
    needs = ", ".join(json.dumps(each) for each in (f"trio-mcp>={installed('trio-mcp')}", *packages))
    return (
        f'[project]\nname = {json.dumps(name)}\nversion = {json.dumps(version)}\nrequires-python = ">=3.11"\n'
        f"dependencies = [{needs}]\n\n[tool.uv]\npackage = false\n"
    )


def write(path: Path, made: dict[str, str], files: Sequence[tuple[str, Path]]) -> None:
    """Write the bundle as a whole. Raises `CommandError`."""
    try:
        with replacing(path) as new, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as bundle:
            for name, text in made.items():
                bundle.writestr(entry_of(name), text)
            for name, file in files:
                bundle.writestr(entry_of(name), read_regular(file, MAX_BYTES))
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}", Status.UNREACHABLE) from error


def entry_of(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def show_files(path: Path, names: Sequence[str], unless_included: Mapping[str, str], never: Mapping[str, str]) -> None:
    """Say on stderr what the bundle will have, and what it will not: by their names, what those files are."""
    note(f"{path} gets:")
    for name in names:
        note(f"  {one_line(name)}")
    for name, kind in unless_included.items():
        note(one_line(f"left out: {name}, {kind}; --include {shlex.quote(name)} packs it"))
    for name, kind in never.items():
        note(one_line(f"left out: {name}, {kind}"))
