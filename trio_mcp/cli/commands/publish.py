"""`trio-mcp publish --server-json`: write the file that tells the MCP registry of a server."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

import click

from ...base.regular_files import MAX_CONFIGURATION, read_regular, replacing
from ..arguments import TargetText, json_option
from ..command import CommandError, Status, command
from ..targets.project import GITHUB, Project, needed, project_of
from ..targets.target import code_of, read_target
from ..terminal.output import note, show_json, show_lines

EXAMPLES = """\
examples:
  trio-mcp publish --server-json
  trio-mcp publish --server-json --name io.github.me/weather --secret WEATHER_KEY
  trio-mcp publish --server-json --output - shop/
  trio-mcp publish --server-json shop/server.py --json
  trio-mcp publish --server-json --name com.example/shop --remote https://mcp.example.com/mcp --no-package

It writes a file and sends nothing: `mcp-publisher publish` sends it. What it writes comes from pyproject.toml. For a project
on GitHub the name is io.github.OWNER/PACKAGE. The registry wants a line `mcp-name: NAME` in the README of the package on PyPI;
without it the status is 1.
"""

SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
NAME: Final = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
MAX_DESCRIPTION: Final = 100
SOURCES: Final = ("github", "gitlab", "bitbucket")


@command(
    "publish", EXAMPLES, {Status.TOOL_ERROR: "it is written, but the README lacks the line that the registry wants"}
)
@click.argument("target", default=".", type=TargetText(), metavar="[FOLDER | TARGET]")
@click.option("--server-json", is_flag=True, help="Write server.json, of the schema of 2025-12-11.")
@click.option("--output", default="server.json", show_default=True, metavar="FILE", help="Where to; - for stdout.")
@click.option("--name", metavar="NAME", help="The name in the registry, such as io.github.me/weather.")
@click.option("--title", metavar="TEXT", help="A title for people.")
@click.option("--description", metavar="TEXT", help="At most 100 characters (default: that of pyproject.toml).")
@click.option("--version", metavar="VERSION", help="The version (default: that of pyproject.toml).")
@click.option("--env", "variables", multiple=True, metavar="NAME", help="A variable that the server reads; repeatable.")
@click.option("--secret", "secrets", multiple=True, metavar="NAME", help="The same, with a secret value; repeatable.")
@click.option("--remote", "remotes", multiple=True, metavar="URL", help="A URL where the server runs; repeatable.")
@click.option("--no-package", is_flag=True, help="The server is no package on PyPI, and is found at --remote alone.")
@json_option
def command_line(
    target: str,
    server_json: bool,
    output: str,
    name: str | None,
    title: str | None,
    description: str | None,
    version: str | None,
    variables: Sequence[str],
    secrets: Sequence[str],
    remotes: Sequence[str],
    no_package: bool,
    as_json: bool,
    debug: bool,  # noqa: ARG001
) -> int:
    """Write the server.json of a project, for the MCP registry.

    FOLDER has the pyproject.toml of the server; by default it is the current one. TARGET is a file or a module of the project
    (app.py, shop.server), or a command in quotes or a server of a file (mcp.json:name) that starts one.
    """
    if not server_json:
        raise CommandError("say what to write: --server-json")
    project = project_of(place_of(target))
    if no_package and not remotes:
        raise CommandError("without a package the server needs a --remote URL")
    name = name or default_name(project)
    document = {
        "$schema": SCHEMA,
        "name": checked_name(name),
        **({"title": title} if title else {}),
        "description": checked_description(description or project.description),
        "version": needed(version or project.version, "--version"),
        **project_links(project),
        **({} if no_package else {"packages": [package(project, version, variables, secrets)]}),
        **({"remotes": [{"type": "streamable-http", "url": url} for url in remotes]} if remotes else {}),
    }
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if output != "-":
        write(Path(output), f"{text}\n")
        note(f"wrote {output}; `mcp-publisher publish` sends it")
    elif not as_json:
        show_lines([text])
    missing = None if no_package else missing_line(project, name)
    if as_json:
        show_json({"file": None if output == "-" else output, "server": document, "missing": missing})
    return Status.OK if missing is None else Status.TOOL_ERROR


def place_of(text: str) -> Path:
    """Return a folder, or where the code of a target is. Raises `CommandError`."""
    if Path(text).is_dir():
        return Path(text)
    code = code_of(read_target(text))
    if code is None:
        raise CommandError(f"{text!r} is neither a folder nor a Python file or module: the registry lists packages")
    if isinstance(code.source, Path):
        return code.source
    # Only the first part: to look for the others would run the code of their packages.
    found = PathFinder.find_spec(code.source.partition(".")[0], ["", *sys.path])
    return Path(found.origin if found is not None and found.origin else "")


def default_name(project: Project) -> str:
    """Return the name for a project on GitHub. Raises `CommandError` for others."""
    found = GITHUB.fullmatch(project.repository or "")
    if found is None or project.name is None:
        raise CommandError(
            "name the server: --name io.github.OWNER/NAME, or a domain of yours backwards (com.example/NAME)"
        )
    return f"io.github.{found[1]}/{project.name}"


def checked_name(name: str) -> str:
    if not NAME.fullmatch(name) or not 3 <= len(name) <= 200:
        raise CommandError(f"{name!r} is not a name of the registry: those are like io.github.me/weather")
    return name


def checked_description(text: str | None) -> str:
    description = needed(text, "--description")
    if len(description) > MAX_DESCRIPTION:
        raise CommandError(
            f"the description has {len(description)} characters, and the registry takes {MAX_DESCRIPTION}: give --description"
        )
    return description


def project_links(project: Project) -> dict[str, object]:
    """Return where the source and the pages of a project are."""
    links: dict[str, object] = {}
    if project.repository:
        source = next((each for each in SOURCES if f"{each}." in project.repository), "git")
        links["repository"] = {"url": project.repository, "source": source}
    if project.homepage:
        links["websiteUrl"] = project.homepage
    return links


def package(
    project: Project, version: str | None, variables: Sequence[str], secrets: Sequence[str]
) -> dict[str, object]:
    """Return the package on PyPI, as the registry describes it."""
    inputs = [{"name": name, "isRequired": True} for name in variables]
    inputs += [{"name": name, "isRequired": True, "isSecret": True} for name in secrets]
    return {
        "registryType": "pypi",
        "identifier": needed(project.name, "--no-package, or write pyproject.toml"),
        "version": needed(version or project.version, "--version"),
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        **({"environmentVariables": inputs} if inputs else {}),
    }


def missing_line(project: Project, name: str) -> str | None:
    """Return the line that the README lacks for this name, or None; say on stderr what is missing."""
    # What follows the name has to end it: a longer name is another one.
    line = re.compile(rf"mcp-name:\s*{re.escape(name)}(?=\s|<|-->|$)")
    try:
        readme = read_regular(project.folder / project.readme, MAX_CONFIGURATION).decode()
    except (OSError, ValueError):
        readme = ""
    missing = None if line.search(readme) else f"<!-- mcp-name: {name} -->"
    if missing:
        note(f"trio-mcp: {project.readme} lacks the line by which the registry knows its owner: {missing}")
    if project.name not in project.scripts:
        note(f"trio-mcp: warning: hosts start `uvx {project.name}`, and [project.scripts] has no {project.name}")
    return missing


def write(path: Path, text: str) -> None:
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}", Status.UNREACHABLE) from error
