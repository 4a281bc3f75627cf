"""What a modern request says about itself."""

from __future__ import annotations

import pytest

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    read_meta,
)
from trio_mcp.protocol.revisions import MODERN, SUPPORTED
from trio_mcp.types import ClientCapabilities, Implementation, JsonObject, JsonValue, SamplingCapability

LEAST: JsonObject = {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}}


def params(**changes: JsonValue) -> JsonObject:
    names = {"version": PROTOCOL_VERSION, "capabilities": CLIENT_CAPABILITIES, "info": CLIENT_INFO}
    names |= {"level": LOG_LEVEL, "token": PROGRESS_TOKEN}
    return {"_meta": {**LEAST, **{names[name]: value for name, value in changes.items()}}}


@pytest.mark.parametrize("legacy", [{}, {"_meta": {}}, {"_meta": {PROGRESS_TOKEN: 1}}, {"_meta": None}, {"_meta": "x"}])
def test_without_a_protocol_version_a_request_is_a_legacy_one(legacy: JsonObject):
    assert read_meta(legacy) is None


def test_the_least_a_modern_request_says():
    meta = read_meta(params())
    assert meta is not None
    assert (meta.protocol_version, meta.client_capabilities, meta.raw) == (MODERN, ClientCapabilities(), LEAST)
    assert (meta.client_info, meta.log_level, meta.progress_token) == (None, None, None)


def test_everything_a_modern_request_can_say():
    meta = read_meta(
        params(capabilities={"sampling": {"tools": {}}}, info={"name": "a", "version": "1"}, level="warning", token="t")
    )
    assert meta is not None
    assert ClientCapabilities(sampling=SamplingCapability(tools={})) == meta.client_capabilities
    assert Implementation(name="a", version="1") == meta.client_info
    assert (meta.log_level, meta.progress_token) == ("warning", "t")


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        ({"_meta": {PROTOCOL_VERSION: MODERN}}, CLIENT_CAPABILITIES),
        (params(version=1), PROTOCOL_VERSION),
        (params(version=None), PROTOCOL_VERSION),
        (params(capabilities=None), CLIENT_CAPABILITIES),
        (params(capabilities=[]), CLIENT_CAPABILITIES),
        (params(capabilities={"sampling": 1}), f'{CLIENT_CAPABILITIES}"].sampling'),
        (params(info={"name": "a"}), f'{CLIENT_INFO}"].version'),
        (params(level="loud"), LOG_LEVEL),
        (params(level={}), LOG_LEVEL),
        (params(token=None), PROGRESS_TOKEN),
        (params(token=True), PROGRESS_TOKEN),
        (params(token=1.5), PROGRESS_TOKEN),
        (params(token=[]), PROGRESS_TOKEN),
    ],
)
def test_a_key_that_is_missing_or_has_the_wrong_type_is_named(broken: JsonObject, names: str):
    with pytest.raises(RemoteProtocolError) as caught:
        read_meta(broken)
    assert caught.value.code == -32602
    assert names in str(caught.value)


@pytest.mark.parametrize("version", ["1900-01-01", "2025-11-25", ""])
def test_a_version_that_no_modern_request_can_have_is_told_before_anything_else(version: str):
    with pytest.raises(RemoteProtocolError) as caught:
        read_meta({"_meta": {PROTOCOL_VERSION: version}})
    assert caught.value.code == -32022
    assert caught.value.data == {"supported": list(SUPPORTED), "requested": version}
