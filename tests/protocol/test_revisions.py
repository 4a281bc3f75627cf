"""The table of revisions agrees with the specification's schema files."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_schemas import VERSIONS, definitions, extension_methods, is_extension, request_definitions

from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY, REVISIONS, SUPPORTED, Era, Method, Revision, Side
from trio_mcp.types import Model

INPUTS = {"elicitation/create", "sampling/createMessage", "roots/list"}


def methods_of(revision: Revision) -> dict[str, Method]:
    return {**revision.requests, **revision.notifications, **revision.inputs}


def referred(definition: dict) -> set[str]:
    return {member["$ref"].rpartition("/")[2] for member in definition.get("anyOf", [definition])}


def methods_in(defs: dict, union: dict) -> set[str]:
    """The methods of a union of messages, which with one member is that message itself."""
    members = [defs[name] for name in referred(union)] if "anyOf" in union else [union]
    return {member["properties"]["method"]["const"] for member in members}


def test_the_newest_revision_comes_first():
    assert tuple(reversed(VERSIONS)) == SUPPORTED
    assert SUPPORTED[:2] == (MODERN, NEWEST_LEGACY)


def test_only_the_newest_revision_is_modern():
    assert {version: REVISIONS[version].era for version in SUPPORTED} == {
        version: Era.MODERN if version == MODERN else Era.LEGACY for version in VERSIONS
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_revision_has_the_methods_of_its_schema_file(spec_dir: Path, version: str):
    of_extension = set(extension_methods()) if version == MODERN else set()
    assert set(request_definitions(spec_dir, version)) | of_extension == set(methods_of(REVISIONS[version]))


@pytest.mark.parametrize("version", VERSIONS)
def test_each_side_may_send_what_its_union_lists(spec_dir: Path, version: str):
    defs = definitions(spec_dir, version)
    revision = REVISIONS[version]
    for side, owner in ((Side.CLIENT, "Client"), (Side.SERVER, "Server")):
        for kind, table in (("Request", revision.requests), ("Notification", revision.notifications)):
            listed = methods_in(defs, defs.get(owner + kind, {"anyOf": []}))
            ours = {name for name, method in table.items() if side in method.senders}
            assert {name for name in ours if not is_extension(version, name)} == listed, (side, kind)


@pytest.mark.parametrize("version", VERSIONS)
def test_params_and_results_are_those_of_the_schema_file(spec_dir: Path, version: str):
    defs = definitions(spec_dir, version)
    for name, definition in request_definitions(spec_dir, version).items():
        method = methods_of(REVISIONS[version]).get(name)
        params = defs[definition]["properties"].get("params", {})
        if method is None or "$ref" not in params:
            continue
        referenced = params["$ref"].rpartition("/")[2]
        expected = {kind.__name__ for kind in (method.params, *method.modes.values())}
        assert expected == (referred(defs[referenced]) if "anyOf" in defs[referenced] else {referenced}), name
        response = defs.get(f"{definition.removesuffix('Request')}ResultResponse")
        if response is not None and method.result is not None:
            assert method.result.__name__ in referred(response["properties"]["result"])


def test_the_modern_era_asks_only_inside_interim_results():
    assert set(REVISIONS[MODERN].inputs) == INPUTS
    assert not any(Side.SERVER in method.senders for method in REVISIONS[MODERN].requests.values())
    assert all(not REVISIONS[version].inputs for version in SUPPORTED if version != MODERN)


@pytest.mark.parametrize(
    ("method", "version", "gate"),
    [
        ("tools/call", "2024-11-05", "tools"),
        ("completion/complete", "2024-11-05", None),
        ("completion/complete", "2025-03-26", "completions"),
        ("resources/subscribe", "2025-11-25", "resources.subscribe"),
        ("elicitation/create", "2025-06-18", "elicitation"),
        ("tasks/get", "2025-11-25", "tasks"),
        ("tasks/result", "2025-11-25", "tasks"),
        ("tasks/list", "2025-11-25", "tasks.list"),
        ("tasks/cancel", "2025-11-25", "tasks.cancel"),
        ("tasks/update", MODERN, "extensions.io.modelcontextprotocol/tasks"),
        ("initialize", "2025-11-25", None),
        ("subscriptions/listen", MODERN, None),
    ],
)
def test_the_gate_of_a_method(method: str, version: str, gate: str | None):
    assert gate == REVISIONS[version].requests[method].gate


def test_progress_flows_to_the_client_only_in_the_modern_era():
    name = "notifications/progress"
    assert REVISIONS[NEWEST_LEGACY].notifications[name].senders == (Side.CLIENT, Side.SERVER)
    assert REVISIONS[MODERN].notifications[name].senders == (Side.SERVER,)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_have_results_and_notifications_none(version: str):
    revision = REVISIONS[version]
    for name, method in methods_of(revision).items():
        assert name == method.name
        assert issubclass(method.params, Model)
        assert (method.result is None) == name.startswith("notifications/")
