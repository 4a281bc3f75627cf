"""The specification's schema files, as an oracle for what we write."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.protocols import Validator

SPEC_DIR = Path(os.environ.get("MCP_SPEC_DIR", Path(__file__).parents[2] / "shared/spec"))
MISSING = (
    f"The specification's schema files are not at {SPEC_DIR}. They are the folder schema of "
    "https://github.com/modelcontextprotocol/modelcontextprotocol, tag 2026-07-28: set MCP_SPEC_DIR to that folder."
)

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")


@cache
def schema_file(spec_dir: Path, version: str) -> dict:
    return json.loads((spec_dir / version / "schema.json").read_text(encoding="utf-8"))


def definitions(spec_dir: Path, version: str) -> dict:
    file = schema_file(spec_dir, version)
    return file.get("$defs") or file["definitions"]


def key(version: str) -> str:
    return "$defs" if version >= "2025-11-25" else "definitions"


@cache
def validator(spec_dir: Path, version: str, pointer: str) -> Validator:
    """Validates against one definition, or against a part of one, like `ElicitRequest/properties/params`."""
    kind = Draft202012Validator if version >= "2025-11-25" else Draft7Validator
    file = schema_file(spec_dir, version)
    return kind({key(version): file[key(version)], "$ref": f"#/{key(version)}/{pointer}"})


EXTENSION = Path(__file__).parent / "tasks_extension.json"
"""The messages of the extension `io.modelcontextprotocol/tasks`, which no schema file of a revision has."""


def is_extension(version: str, method: str) -> bool:
    """Whether a method of this revision belongs to the tasks extension."""
    return version == VERSIONS[-1] and method.startswith(("tasks/", "notifications/tasks"))


@cache
def extension_validator(spec_dir: Path, pointer: str) -> Validator:
    """Validates against one definition of the extension, which refers to those of its revision."""
    extension = json.loads(EXTENSION.read_text(encoding="utf-8"))["$defs"]
    return Draft202012Validator(
        {"$defs": {**definitions(spec_dir, VERSIONS[-1]), **extension}, "$ref": f"#/$defs/{pointer}"}
    )


@cache
def extension_methods() -> dict[str, str]:
    """Method of the extension to the name of its definition."""
    extension = json.loads(EXTENSION.read_text(encoding="utf-8"))["$defs"]
    parts = {name: part for name, body in extension.items() for part in body.get("allOf", ()) if "properties" in part}
    methods = {name: part["properties"].get("method", {}).get("const") for name, part in parts.items()}
    return {method: name for name, method in methods.items() if method is not None}


FREE_FORM = {"inputSchema", "outputSchema", "_meta"}


@cache
def closed_validator(spec_dir: Path, version: str, pointer: str) -> Validator:
    """The same, but a member that the definition does not name is an error."""
    kind = Draft202012Validator if version >= "2025-11-25" else Draft7Validator
    closed = {name: close(name, body) for name, body in definitions(spec_dir, version).items()}
    return kind({key(version): closed, "$ref": f"#/{key(version)}/{pointer}"})


def close(name: str, schema: dict) -> dict:
    if (
        "properties" not in schema
        or "additionalProperties" in schema
        or name in FREE_FORM
        or name.endswith("MetaObject")
    ):
        return schema
    members = {member: close(member, inner) for member, inner in schema["properties"].items()}
    if name == "params":
        members.setdefault("_meta", {})
    return {**schema, "properties": members, "additionalProperties": False}


@cache
def request_definitions(spec_dir: Path, version: str) -> dict[str, str]:
    """Method to the name of its definition, for requests and notifications."""
    found = {}
    for name, definition in definitions(spec_dir, version).items():
        method = definition.get("properties", {}).get("method", {}).get("const")
        if method is not None:
            found[method] = name
    return found


def properties(spec_dir: Path, version: str, name: str) -> set[str] | None:
    """The members a definition names, or None when the revision has no such definition.

    Older revisions write params inline, and leave to the general `Request` that all of them have a `_meta`.
    """
    defs = definitions(spec_dir, version)
    if name in defs:
        return set(defs[name].get("properties", {}))
    for method in ("Request", "Notification"):
        owner = name.removesuffix("Params")
        if name.endswith(f"{method}Params") and owner in defs:
            return {"_meta", *defs[owner]["properties"]["params"].get("properties", {})}
    return None
