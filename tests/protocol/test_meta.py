"""What a modern request says about itself."""

from __future__ import annotations

import pytest

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.codec.reading import MAX_KNOWN, RequestTerms, classify, modern_terms
from trio_mcp.protocol.jsonrpc import Request, decoded
from trio_mcp.protocol.revisions import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    MODERN,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    SUPPORTED,
    Era,
)
from trio_mcp.types import ClientCapabilities, Implementation, JsonObject, JsonValue, SamplingCapability

LEAST: JsonObject = {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}}


def params(**changes: JsonValue) -> JsonObject:
    names = {"version": PROTOCOL_VERSION, "capabilities": CLIENT_CAPABILITIES, "info": CLIENT_INFO}
    names |= {"level": LOG_LEVEL, "token": PROGRESS_TOKEN}
    return {"_meta": {**LEAST, **{names[name]: value for name, value in changes.items()}}}


def terms_of(params: JsonObject) -> RequestTerms:
    inbound = classify(Request(1, "tools/list", params))
    assert inbound.era is Era.MODERN
    assert inbound.meta is not None
    return modern_terms(inbound.meta)


@pytest.mark.parametrize("legacy", [{}, {"_meta": {}}, {"_meta": {PROGRESS_TOKEN: 1}}, {"_meta": None}, {"_meta": "x"}])
def test_without_a_protocol_version_a_request_is_a_legacy_one(legacy: JsonObject):
    inbound = classify(Request(1, "tools/list", legacy))
    assert (inbound.era, inbound.meta, inbound.version) == (Era.LEGACY, None, None)


def test_the_least_a_modern_request_says():
    terms = terms_of(params())
    assert (terms.codec.revision.name, terms.client_capabilities, decoded(terms.meta)) == (
        MODERN,
        ClientCapabilities(),
        LEAST,
    )
    assert (terms.client_info, terms.log_threshold.level, terms.progress_token) == (None, None, None)
    assert terms.asks_in_rounds


def test_everything_a_modern_request_can_say():
    terms = terms_of(
        params(capabilities={"sampling": {"tools": {}}}, info={"name": "a", "version": "1"}, level="warning", token="t")
    )
    assert ClientCapabilities(sampling=SamplingCapability(tools={})) == terms.client_capabilities
    assert Implementation(name="a", version="1") == terms.client_info
    assert (terms.log_threshold.level, terms.progress_token) == ("warning", "t")


def test_what_a_client_states_in_each_request_becomes_a_model_once_and_a_large_statement_is_not_kept():
    said = params(capabilities={"sampling": {"tools": {}}}, info={"name": "twice", "version": "1"}, level="info")
    first, again = (
        terms_of(said),
        terms_of(
            params(
                capabilities={"sampling": {"tools": {}}}, info={"name": "twice", "version": "1"}, level="info", token=7
            )
        ),
    )
    assert first.client_capabilities is again.client_capabilities
    assert first.client_info is again.client_info
    assert (first.progress_token, again.progress_token) == (None, 7)
    large = params(info={"name": "n" * MAX_KNOWN, "version": "1"})
    assert terms_of(large).client_info is not terms_of(large).client_info


def test_what_is_wrong_is_wrong_each_time():
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="must be one of"):
            terms_of(params(level="loud"))


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        ({"_meta": {PROTOCOL_VERSION: MODERN}}, CLIENT_CAPABILITIES),
        (params(version=1), PROTOCOL_VERSION),
        (params(version=None), PROTOCOL_VERSION),
        (params(capabilities=None), CLIENT_CAPABILITIES),
        (params(capabilities=[1]), CLIENT_CAPABILITIES),
        (params(capabilities={"sampling": 1}), f'{CLIENT_CAPABILITIES}"].sampling'),
        (params(info={"name": "a"}), f'{CLIENT_INFO}"].version'),
        (params(level="loud"), LOG_LEVEL),
        (params(level={}), LOG_LEVEL),
        (params(token=True), PROGRESS_TOKEN),
        (params(token=1.5), PROGRESS_TOKEN),
        (params(token=[]), PROGRESS_TOKEN),
        (params(token="x" * 257), f'{PROGRESS_TOKEN}"]: must be a string of at most 256 bytes'),
        (params(token=2**53), PROGRESS_TOKEN),
    ],
)
def test_a_key_that_is_missing_or_has_the_wrong_type_is_named(broken: JsonObject, names: str):
    with pytest.raises(RemoteProtocolError) as caught:
        terms_of(broken)
    assert caught.value.code == -32602
    assert names in str(caught.value)


@pytest.mark.parametrize("version", ["1900-01-01", "2025-11-25", ""])
def test_a_version_that_no_modern_request_can_have_is_reported_first(version: str):
    with pytest.raises(RemoteProtocolError) as caught:
        terms_of({"_meta": {PROTOCOL_VERSION: version}})
    assert caught.value.code == -32022
    assert caught.value.data == {"supported": list(SUPPORTED), "requested": version}
