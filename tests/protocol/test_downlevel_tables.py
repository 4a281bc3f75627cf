"""The tables of what each revision lacks agree with the schema files, in both directions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from spec_schemas import VERSIONS, definitions, properties

from trio_mcp.protocol.codec.downlevel import CHILDREN, LACKS, LATE_MEMBERS
from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY, REVISIONS

BLOCKS = ("TextContent", "ImageContent", "AudioContent", "EmbeddedResource", "ResourceLink")
UNIONS = {
    "ContentBlock": BLOCKS,
    "SamplingMessageContentBlock": ("TextContent", "ImageContent", "AudioContent"),
    "ResourceContents": ("TextResourceContents", "BlobResourceContents"),
}
NESTED = {
    "RootsCapability": ("ClientCapabilities", "roots"),
    "SamplingCapability": ("ClientCapabilities", "sampling"),
    "ElicitationCapability": ("ClientCapabilities", "elicitation"),
    "RequestedSchema": ("ElicitRequestFormParams", "requestedSchema"),
}
INLINE = {"ElicitRequestFormParams": "ElicitRequest"}


def lost(spec_dir: Path, have: str, lack: str, shape: str) -> set[str]:
    """The members of a shape in one revision that another lacks, of the kinds that both have.

    A kind that came or went whole did so with its method, with the member that holds it, or by a rewrite.
    """
    gone: set[str] = set()
    for name in UNIONS.get(shape, (shape,)):
        before, after = members(spec_dir, have, name), members(spec_dir, lack, name)
        if before is not None and after is not None:
            gone |= before - after
    return gone


def members(spec_dir: Path, version: str, name: str) -> set[str] | None:
    if name in NESTED:
        return nested_members(spec_dir, version, *NESTED[name])
    found = properties(spec_dir, version, name)
    return inline_members(spec_dir, version, name) if found is None else found


def inline_members(spec_dir: Path, version: str, shape: str) -> set[str] | None:
    owner = definitions(spec_dir, version).get(INLINE.get(shape, ""), {})
    params = owner.get("properties", {}).get("params", {})
    return {"_meta", *params["properties"]} if "properties" in params else None


def nested_members(spec_dir: Path, version: str, owner: str, member: str) -> set[str] | None:
    defs = definitions(spec_dir, version)
    outer = defs.get(owner) or defs.get(INLINE.get(owner, ""), {}).get("properties", {}).get("params", {})
    inner = outer.get("properties", {}).get(member)
    return None if inner is None else set(inner.get("properties", {}))


def shapes() -> set[str]:
    everything = set(CHILDREN) | {child for children in CHILDREN.values() for child in children.values()}
    for revision in REVISIONS.values():
        for method in (*revision.requests.values(), *revision.notifications.values()):
            everything |= {kind.__name__ for kind in (method.params, method.result, *method.modes.values()) if kind}
    return everything


STEPS = [(newer, older) for older, newer in pairwise(VERSIONS)]


@pytest.mark.parametrize(("newer", "older"), STEPS)
def test_every_member_an_older_revision_lacks_is_taken_out(spec_dir: Path, newer: str, older: str):
    gone = {shape: lost(spec_dir, newer, older, shape) - set(LATE_MEMBERS) for shape in shapes()}
    assert gone == {shape: set(LACKS[older].get(shape, ())) for shape in shapes()}


def test_every_member_the_modern_revision_removed_is_taken_out(spec_dir: Path):
    # Answers inside interim results have no `_meta` member any more, and none is put there.
    gone = {shape: lost(spec_dir, NEWEST_LEGACY, MODERN, shape) - {"_meta"} for shape in shapes()}
    assert gone == {shape: set(LACKS[MODERN].get(shape, ())) for shape in shapes()}


def test_the_tables_name_no_shape_that_does_not_exist():
    named = {shape for table in LACKS.values() for shape in table}
    assert named <= shapes()
