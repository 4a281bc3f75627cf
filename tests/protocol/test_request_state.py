"""Sealed `requestState`: opens for the request it was sealed for, and every other refusal reads the same."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, strategies as st
from json_strategies import json_values
from naming import naming

from trio_mcp.errors import InvalidRequestState, LimitExceeded
from trio_mcp.protocol.sealing.request_state import Claims, KeyRing, RequestDigest, Sealer, digest
from trio_mcp.protocol.strict_json import dumps
from trio_mcp.types import (
    CallToolRequestParams,
    GetPromptRequestParams,
    JsonObject,
    JsonValue,
    ReadResourceRequestParams,
)

KEY, OTHER_KEY = bytes(range(32)), bytes(range(32, 64))
METHOD = "tools/call"
ARGUMENTS: JsonObject = {"flight": "TP1", "seats": [1, 2]}
DIGEST = digest("book", ARGUMENTS)
NOW = 1_790_000_000.25
CLAIMS: dict[str, Any] = {
    "principal": "alice",
    "method": METHOD,
    "digest": DIGEST,
    "audience": "booking",
    "call_id": "call-1",
    "leg": 2,
    "issued_at": NOW,
    "expires_at": NOW + 600,
    "journal": None,
}


@dataclass
class Clock:
    now: float = NOW

    def __call__(self) -> float:
        return self.now


def sealer(*keys: bytes, audience: str = "booking", clock: Clock | None = None, ttl: float = 600) -> Sealer:
    return Sealer(KeyRing(keys or (KEY,)), audience, ttl=ttl, clock=clock or Clock())


def seal(by: Sealer, journal: JsonValue = None) -> str:
    return by.seal("alice", METHOD, DIGEST, "call-1", 2, journal)


def refusal(
    state: object,
    by: Sealer | None = None,
    principal: str | None = "alice",
    method: str = METHOD,
    expected: str = DIGEST,
) -> str:
    """The reason of the refusal, whose visible part is always the same."""
    with pytest.raises(InvalidRequestState) as caught:
        (by or sealer()).open(state, principal, method, expected)
    error = caught.value
    assert (str(error), error.code, error.data, error.request_id) == (InvalidRequestState.TEXT, -32602, None, None)
    assert not isinstance(state, str) or len(state) < 4 or state not in error.reason
    return error.reason


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def raw(state: str) -> bytes:
    return urlsafe_b64decode(state + "=" * (-len(state) % 4))


# Opening what was sealed


def test_a_state_opens_to_the_claims_it_was_sealed_with() -> None:
    assert sealer().open(seal(sealer()), "alice", METHOD, DIGEST) == Claims(**CLAIMS)


@given(st.none() | st.text(), st.text(), st.text(), st.integers(0, 1000), json_values())
def test_whatever_is_sealed_is_opened(
    caller: str | None, method: str, call_id: str, leg: int, journal: JsonValue
) -> None:
    by = sealer()
    claims = by.open(by.seal(caller, method, DIGEST, call_id, leg, journal), caller, method, DIGEST)
    sealed = (caller, method, call_id, leg, journal)
    assert sealed == (claims.principal, claims.method, claims.call_id, claims.leg, claims.journal)


def test_a_deep_journal_is_opened_too() -> None:
    journal: JsonValue = "answer"
    for _ in range(200):
        journal = [journal]
    by = sealer()
    assert journal == by.open(seal(by, journal), "alice", METHOD, DIGEST).journal


def test_a_state_is_url_safe_and_never_twice_the_same() -> None:
    states = {seal(sealer()) for _ in range(50)}
    assert len(states) == 50
    assert all(character.isalnum() or character in "-_" for state in states for character in state)


def test_a_state_hides_what_it_says() -> None:
    state = seal(sealer(), "the-secret-answer")
    for word in (b"alice", b"tools/call", b"booking", b"the-secret-answer"):
        assert word not in raw(state)


# Refusals


@pytest.mark.parametrize("state", [None, 1, 1.5, True, b"abc", [], {}, ["a"], {"a": 1}])
def test_a_state_that_is_no_string_is_refused(state: object) -> None:
    assert refusal(state) == "not a string"


@pytest.mark.parametrize("state", ["A" * (64 * 1024 + 1), "A" * 1024 * 1024, "\ud800" * 1024 * 1024])
def test_a_state_over_the_limit_is_refused_unread(state: str) -> None:
    assert refusal(state) == "longer than max_state"


@pytest.mark.parametrize("bad", ["=", "+", "/", " ", "\n", "\0", "é", "\ud800", "\u0661", ".", "%"])
def test_a_character_outside_base64url_is_refused_wherever_it_stands(bad: str) -> None:
    state = seal(sealer())
    for position in (0, 1, len(state) // 2, len(state) - 1, len(state)):
        assert refusal(state[:position] + bad + state[position:]) == "not base64url"
        refusal(state[:position] + bad + state[position + 1 :])


def test_another_way_to_write_the_same_bytes_is_refused() -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    by = sealer()
    checked = 0
    for length in range(3):
        state = seal(by, "x" * length)
        for last in alphabet:
            other = state[:-1] + last
            if other != state and raw(other) == raw(state):
                assert refusal(other) == "not base64url"
                checked += 1
    assert checked


def test_every_flipped_bit_of_the_text_is_refused() -> None:
    state = seal(sealer(), {"asked": ["name"]})
    for position, character in enumerate(state):
        for bit in range(7):
            refusal(state[:position] + chr(ord(character) ^ (1 << bit)) + state[position + 1 :])


def test_every_flipped_bit_of_the_bytes_is_refused() -> None:
    data = raw(seal(sealer(), {"asked": ["name"]}))
    for position in range(len(data)):
        for bit in range(8):
            refusal(base64url(data[:position] + bytes([data[position] ^ (1 << bit)]) + data[position + 1 :]))


def test_every_truncation_and_extension_is_refused() -> None:
    state = seal(sealer())
    for end in range(len(state)):
        refusal(state[:end])
        refusal(state[end + 1 :])
    for more in ("A", "AA", "AAA", "AAAA", state):
        refusal(state + more)


@given(st.binary(max_size=120) | st.binary(min_size=28, max_size=120).map(lambda data: b"\x01" + data))
def test_any_bytes_are_refused(data: bytes) -> None:
    refusal(base64url(data))


@given(st.text(max_size=80))
def test_any_text_is_refused(text: str) -> None:
    refusal(text)


STATE, THEIRS = seal(sealer()), seal(sealer(OTHER_KEY))
OTHER_REQUEST = "sealed for another name or other arguments"


@pytest.mark.parametrize(
    ("state", "asked", "reason"),
    [
        (base64url(b"\x02" + raw(STATE)[1:]), {}, "unknown version"),
        *[
            (STATE, {"principal": other}, "sealed for another principal")
            for other in ("bob", "Alice", "alice ", "", None)
        ],
        (sealer().seal(None, METHOD, DIGEST, "call-1", 1), {"principal": ""}, "sealed for another principal"),
        (sealer().seal(None, METHOD, DIGEST, "call-1", 1), {"principal": "None"}, "sealed for another principal"),
        (STATE, {"method": "prompts/get"}, "sealed for another method"),
        (STATE, {"expected": digest("cancel", ARGUMENTS)}, OTHER_REQUEST),
        (STATE, {"expected": digest("book", {})}, OTHER_REQUEST),
        (STATE, {"expected": digest("book", {**ARGUMENTS, "extra": None})}, OTHER_REQUEST),
        (seal(sealer(audience="billing")), {}, "sealed by another server"),
        (THEIRS, {}, "unknown key"),
        (base64url(raw(STATE)[:5] + raw(THEIRS)[5:]), {}, "the tag does not fit"),
    ],
)
def test_a_state_opens_only_for_what_it_was_sealed_for(state: str, asked: dict[str, Any], reason: str) -> None:
    assert refusal(state, **asked) == reason


def test_a_state_is_read_for_any_caller_but_only_if_this_server_sealed_it() -> None:
    clock = Clock()
    own = sealer(clock=clock)
    state = seal(own, {"node": "here"})
    clock.now += 1000
    claims = own.peek(state)
    assert (claims.call_id, claims.leg, claims.journal) == ("call-1", 2, {"node": "here"})
    for stranger in (sealer(OTHER_KEY), sealer(audience="another")):
        with pytest.raises(InvalidRequestState):
            stranger.peek(state)


def test_a_state_is_refused_from_the_second_it_expires() -> None:
    clock = Clock(1000.0)
    by = sealer(clock=clock, ttl=30)
    state = seal(by)
    clock.now = 1029.999
    by.open(state, "alice", METHOD, DIGEST)
    clock.now = 1030.0
    assert refusal(state, by) == "expired"


def test_a_state_from_a_clock_ahead_is_accepted_within_a_minute() -> None:
    state = seal(sealer(clock=Clock(1060.0)))
    sealer(clock=Clock(1000.0)).open(state, "alice", METHOD, DIGEST)
    assert refusal(state, sealer(clock=Clock(999.9))) == "issued in the future"


def authentic(plain: bytes) -> str:
    """Seal any bytes, as another version of the program may that shares the key."""
    [secret] = KeyRing([KEY]).derive("trio_mcp requestState v1", 36)
    header, nonce = b"\x01" + secret[:4], bytes(12)
    return base64url(header + nonce + AESGCM(secret[4:]).encrypt(nonce, plain, header))


@pytest.mark.parametrize(
    "plain", [b"", b"[]", b"{}", b"\xff", b'{"principal":1}', b"[" * 10_000, dumps({**CLAIMS, "leg": "one"})]
)
def test_authentic_bytes_that_hold_no_claims_are_refused(plain: bytes) -> None:
    assert sealer().open(authentic(dumps(CLAIMS)), "alice", METHOD, DIGEST) == Claims(**CLAIMS)
    assert refusal(authentic(plain)) in ("no JSON inside", "no claims inside")


# Sealing


def test_a_state_that_would_be_over_the_limit_is_not_sealed() -> None:
    with pytest.raises(LimitExceeded, match=naming(65536, "max_state")):
        seal(sealer(), "x" * 50_000)
    by = Sealer(KeyRing.random(), "booking", max_state=500)
    assert len(seal(by)) <= 500
    with pytest.raises(LimitExceeded, match=r"the limit is 500 \(max_state\)"):
        seal(by, "x" * 200)


def test_a_journal_that_is_no_json_is_refused_with_its_path() -> None:
    with pytest.raises(ValueError, match=naming("journal.answers[0]", "nan")):
        seal(sealer(), {"answers": [float("nan")]})


# Digests


def test_a_digest_knows_no_order_of_members() -> None:
    assert digest("t", {"a": {"x": 1, "y": 2}, "b": 3}) == digest("t", {"b": 3, "a": {"y": 2, "x": 1}})


def test_a_digest_tells_everything_else_apart() -> None:
    values: list[JsonValue] = [1, "1", True, None, [1], [1, 2], [2, 1], {}, "é", "e\u0301"]
    arguments: list[JsonObject] = [{}, {"b": 1}, *[{"a": value} for value in values]]
    digests = [digest(name, each) for name in ("t", "u", "", '["t",{}]') for each in arguments]
    assert len(digests) == len(set(digests))


def test_a_digest_of_a_value_that_is_not_json_is_rejected() -> None:
    with pytest.raises(ValueError):
        digest("t", {"a": float("nan")})


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was hashed."""
    hashed: list[bytes] = []
    real = hashlib.sha256

    def sha256(data: bytes) -> Any:
        hashed.append(data)
        return real(data)

    monkeypatch.setattr(hashlib, "sha256", sha256)
    return hashed


def test_the_digest_of_plain_arguments_is_computed_when_it_is_first_read(hashes: list[bytes]) -> None:
    arguments: JsonObject = {"text": "x" * 1_000, "times": 3, "loud": True, "to": None}
    late = RequestDigest(CallToolRequestParams(name="echo", arguments=arguments))
    assert hashes == []
    assert str(late) == str(late)
    assert len(hashes) == 1
    assert str(late) == digest("echo", arguments)


def test_what_a_body_does_to_its_arguments_does_not_change_the_digest(hashes: list[bytes]) -> None:
    arguments: JsonObject = {"text": "x", "rows": [1, {"a": 2}]}
    for sent in ({"text": "x"}, arguments):
        wanted = digest("edit", sent)
        params = CallToolRequestParams(name="edit", arguments=sent)
        late = RequestDigest(params)
        assert params.arguments is not None
        params.arguments["text"] = "y"
        rows = params.arguments.get("rows")
        if isinstance(rows, list):
            rows.clear()
        assert str(late) == wanted


def test_each_kind_of_request_has_its_digest() -> None:
    assert str(RequestDigest(GetPromptRequestParams(name="p", arguments={"a": "b"}))) == digest("p", {"a": "b"})
    assert str(RequestDigest(ReadResourceRequestParams(uri="file:///a"))) == digest("file:///a", {})
    assert str(RequestDigest(DIGEST)) == DIGEST


# Keys


def test_after_a_rotation_the_new_key_seals_and_the_old_one_still_opens() -> None:
    before, during, after = sealer(OTHER_KEY), sealer(KEY, OTHER_KEY), sealer(KEY)
    during.open(seal(before), "alice", METHOD, DIGEST)
    after.open(seal(during), "alice", METHOD, DIGEST)
    assert refusal(seal(before), by=after) == "unknown key"


@pytest.mark.parametrize("separator", [",", "\n", "\r\n", " , ", ",\n", "\n\n"])
def test_a_ring_is_parsed_from_keys_in_base64url(separator: str) -> None:
    ring = KeyRing.parse(separator.join([base64url(KEY), base64url(OTHER_KEY) + "="]) + separator)
    by = Sealer(ring, "booking", clock=Clock())
    for key in (KEY, OTHER_KEY):
        by.open(seal(sealer(key)), "alice", METHOD, DIGEST)
    sealer(KEY).open(seal(by), "alice", METHOD, DIGEST)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "at least one key"),
        (" ,\n", "at least one key"),
        (base64url(KEY[:31]), "Key 1 has 31 bytes; a key has 32."),
        (base64url(KEY) + "," + base64url(KEY + b"x"), "Key 2 has 33 bytes; a key has 32."),
        (base64url(KEY) + "," + base64url(KEY), "occurs twice"),
        (base64url(KEY) + ",not a key!", "Key 2 is not base64url"),
        (base64url(KEY)[:-1] + "9", "Key 1 is not base64url"),
        (KEY.hex(), "Key 1 has 48 bytes"),
    ],
)
def test_a_bad_list_of_keys_is_refused_without_showing_one(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        KeyRing.parse(text)
    shown = str(caught.value)
    assert not any(item.strip() and item in shown for item in text.split(","))


def test_a_ring_needs_whole_keys() -> None:
    for keys in ([], [b""], [KEY[:16]], [KEY, KEY + KEY], [KEY, KEY]):
        with pytest.raises(ValueError):
            KeyRing(keys)


def test_two_keys_under_one_id_are_refused() -> None:
    class Colliding(KeyRing):
        def derive(self, purpose: str, size: int) -> list[bytes]:
            return [b"same" + secret[4:] for secret in super().derive(purpose, size)]

    with pytest.raises(ValueError, match="the same id: replace one"):
        Sealer(Colliding([KEY, OTHER_KEY]), "booking")


def test_purposes_and_keys_have_unrelated_secrets() -> None:
    ring = KeyRing([KEY, OTHER_KEY])
    derived = {secret for purpose in ("a", "b", "") for secret in ring.derive(purpose, 32)}
    assert len(derived - {KEY, OTHER_KEY}) == 6
    assert ring.derive("a", 32) == ring.derive("a", 32)


def test_no_repr_shows_a_key() -> None:
    assert repr(KeyRing([KEY])) == "<KeyRing: 1 key>"
    assert str(KeyRing([KEY, OTHER_KEY])) == "<KeyRing: 2 keys>"
    assert repr(sealer(KEY, OTHER_KEY)) == "<Sealer: audience='booking', 2 keys, ttl=600 s>"


def test_the_repr_of_claims_leaves_the_journal_out() -> None:
    by = sealer()
    assert "my-answer" not in repr(by.open(seal(by, "my-answer"), "alice", METHOD, DIGEST))
