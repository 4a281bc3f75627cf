"""A client among peers that choose each of their answers: no secret leaves for an origin that it is not for, and every login
ends in tokens or in a typed error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, multiple, rule
from oauth_world import ISSUER, RESOURCE_METADATA, SERVER_METADATA, URL, World, as_reply

from trio_mcp.auth import AuthorizationError
from trio_mcp.auth.challenges import Challenge
from trio_mcp.auth.client.code import code_grant
from trio_mcp.auth.client.flow import Flow, LoginRequest, client_of, log_in
from trio_mcp.auth.client.grants import refresh
from trio_mcp.auth.client.registration import ClientIdentity
from trio_mcp.auth.client.steps import Browse, Get, Post
from trio_mcp.auth.client.stored import Login
from trio_mcp.auth.client.token_files import MemoryTokens
from trio_mcp.auth.replies import Reply
from trio_mcp.auth.uris import origin

EVIL = "https://evil.example"
OTHER = "https://other-as.example"
REDIRECT = "http://127.0.0.1:7000/callback"

issuers = st.sampled_from([ISSUER, OTHER, EVIL, f"{ISSUER}/"])
members = st.dictionaries(
    st.sampled_from(
        [
            "resource",
            "authorization_servers",
            "issuer",
            "token_endpoint",
            "authorization_endpoint",
            "error",
            "scope",
            "registration_endpoint",
            "client_id",
            "access_token",
            "token_type",
            "refresh_token",
            "expires_in",
            "iss",
        ]
    ),
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | issuers | st.lists(issuers, max_size=2),
    max_size=4,
)
kinds = st.sampled_from(["good", "good", "good", "good", "changed", "status", "bytes"])


class Peers(RuleBasedStateMachine):
    """One client that logs in and refreshes, as often as the machine likes."""

    logins: Bundle[Login] = Bundle("logins")

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.flow = Flow(identity=ClientIdentity(), grant=_unused, store=MemoryTokens(), browser=World().browser)
        self.issued: dict[str, str] = {}
        """Secrets, by what they are, to the origin that they may be sent to."""

    def answer(self, request: Get | Post | Browse, data: st.DataObject) -> Any:
        """Check a request, and return the answer of the peer."""
        if isinstance(request, Browse):
            return self.browse(request.url, data)
        self.check_secrets(request)
        good = self.world.reply(request)
        match data.draw(kinds):
            case "good":
                reply = good
            case "changed":
                known = good.document("x") if good.status in (200, 201) else {}
                reply = as_reply({**known, **data.draw(members)}, data.draw(st.sampled_from([200, 201, 400, 401])))
            case "status":
                reply = Reply(data.draw(st.sampled_from([302, 401, 404, 429, 500])), {}, good.body)
            case _:
                reply = Reply(200, {}, data.draw(st.binary(max_size=20)))
        self.learn(request, reply)
        return reply

    def browse(self, url: str, data: st.DataObject) -> str:
        assert urlsplit(url).scheme == "https"
        assert parse_qs(urlsplit(url).query)["code_challenge_method"] == ["S256"]
        redirect = data.draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "state": st.none() | st.just("other"),
                    "iss": st.none() | issuers,
                    "code": st.none() | st.just("stolen-code"),
                    "error": st.just("access_denied"),
                },
            )
        )
        self.world.redirect = {"code": f"code-{len(self.world.pages)}-secret", **redirect}
        return self.world.redirected(url)

    def check_secrets(self, request: Get | Post) -> None:
        sent = "" if isinstance(request, Get) else f"{dict(request.form or {})}{dict(request.headers)}"
        for secret, place in self.issued.items():
            if secret in f"{request.url} {sent}":
                assert origin(request.url) == place, f"a secret of {place} was sent to {origin(request.url)}"

    def check_shown(self, text: str) -> None:
        assert not any(secret in text for secret in ["stolen-code", *self.issued])

    def learn(self, request: Get | Post, reply: Reply) -> None:
        if isinstance(request, Post) and request.form is not None:
            for name in ("code", "code_verifier"):
                if name in request.form and request.form[name] != "stolen-code":
                    self.issued.setdefault(request.form[name], origin(request.url))

    @rule(target=logins, data=st.data(), before=st.none() | logins, step_up=st.booleans())
    def log_in(self, data: st.DataObject, before: Login | None, step_up: bool) -> Login | None:
        challenge = Challenge("bearer", data.draw(st.sampled_from([{}, {"scope": "a b"}, {"scope": ""}])))
        request = LoginRequest(url=URL, challenge=challenge, before=before, is_step_up=step_up, redirect_uri=REDIRECT)
        login = self.ended(log_in(self.flow, code_grant, request, lambda: 0.0), data)
        if login is None:
            return multiple()
        # Refresh tokens are for the token endpoint of their issuer.
        assert login.registration.issuer == login.server.issuer
        return self.unique(login)

    @rule(target=logins, data=st.data(), login=consumes(logins))
    def refresh(self, data: st.DataObject, login: Login) -> Login:
        if login.tokens.refresh is None:
            return login
        tokens = self.ended(refresh(client_of(self.flow, login, lambda: 0.0), login.tokens), data)
        return login if tokens is None else self.unique(login.with_tokens(tokens))

    def unique(self, login: Login) -> Login:
        """Return a login whose refresh token is known by its endpoint."""
        refresh_token = f"refresh-secret-{len(self.issued)}"
        assert login.server.token_endpoint is not None
        try:
            self.issued[refresh_token] = origin(login.server.token_endpoint)
        except ValueError:
            return replace(login, tokens=replace(login.tokens, refresh=None))
        return replace(login, tokens=replace(login.tokens, refresh=refresh_token))

    def ended(self, steps: Any, data: st.DataObject) -> Any:
        """Run steps to their end, and return the result; None after a typed error."""
        reply: Any = None
        for _ in range(40):
            try:
                request = steps.send(reply)
            except StopIteration as end:
                return end.value
            except AuthorizationError as error:
                self.check_shown(str(error))
                return None
            if isinstance(request, Get | Post) and not is_url(request.url):
                return None  # The driver raises.
            reply = self.answer(request, data)
        raise AssertionError("the flow does not end")


def is_url(url: str) -> bool:
    try:
        return bool(origin(url))
    except ValueError:
        return False


async def _unused() -> Any:
    raise AssertionError("the machine passes the grant itself")


Peers.TestCase.settings = settings(max_examples=60, stateful_step_count=8, deadline=None)
TestPeers = Peers.TestCase


def test_the_world_of_the_machine_has_a_good_way() -> None:
    assert {RESOURCE_METADATA, SERVER_METADATA} <= World().documents.keys()


pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
