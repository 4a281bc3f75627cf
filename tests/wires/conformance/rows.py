"""The server scenarios of the official suite as tests of our own: which test drives which scenario, and what is excused.

The suite speaks HTTP only. Here the server is a child process, and our own client, or a peer that writes lines as it likes,
is at the other end of its pipes. `pytest tests/conformance -k tools-call-image` finds what drives a scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from driven import Body, Servers

__all__ = ["EXCUSED", "HANDSHAKE", "MODERN", "ROWS", "SCENARIOS", "row"]

HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"

ROWS: dict[tuple[str, str], list[str]] = {}
"""By scenario and revision: the tests that drive it, noted when their modules are imported."""

EXCUSED: Mapping[str, str] = {
    "dns-rebinding-protection": "a pipe has no Host and no Origin",
    "server-sse-multiple-streams": "a pipe is one stream",
    "server-sse-polling": "there is no stream that could end before its answer",
    "server-session-lifecycle": "the process is the session: it has no id, and no DELETE",
    "http-header-validation": "there are no headers",
    "http-custom-header-server-validation": "there are no headers",
    "tasks-*": "the extension is not built yet",
}
"""Scenarios that make no sense over stdio, and why; a star stands for the rest of a name."""

BOTH = """
    completion-complete tools-list tools-call-simple-text tools-call-image tools-call-audio tools-call-embedded-resource
    tools-call-mixed-content tools-call-error tools-call-with-progress server-sse-multiple-streams json-schema-2020-12
    resources-list resources-read-text resources-read-binary resources-templates-read prompts-list prompts-get-simple
    prompts-get-with-args prompts-get-embedded-resource prompts-get-with-image dns-rebinding-protection
"""

SCENARIOS: Mapping[str, frozenset[str]] = {
    HANDSHAKE: frozenset(f"""{BOTH}
        server-initialize logging-set-level ping tools-call-with-logging tools-call-sampling tools-call-elicitation
        elicitation-sep1034-defaults elicitation-sep1330-enums resources-subscribe resources-unsubscribe
        server-session-lifecycle server-sse-polling
    """.split()),
    MODERN: frozenset(f"""{BOTH}
        server-stateless sep-2164-resource-not-found caching input-required-result-basic-elicitation
        input-required-result-basic-sampling input-required-result-basic-list-roots input-required-result-request-state
        input-required-result-multiple-input-requests input-required-result-multi-round
        input-required-result-missing-input-response input-required-result-non-tool-request
        input-required-result-result-type input-required-result-unsupported-methods input-required-result-tampered-state
        input-required-result-capability-check input-required-result-ignore-extra-params
        input-required-result-validate-input http-header-validation http-custom-header-server-validation
        tasks-lifecycle tasks-capability-negotiation tasks-wire-fields tasks-request-state-removal tasks-mrtr-input
        tasks-request-headers tasks-dispatch-and-envelope tasks-status-notifications tasks-required-task-error
        tasks-mrtr-composition
    """.split()),
}  # fmt: skip
"""Every server scenario that the pinned suite runs with a revision's requirements, scored or not."""


def row(scenario: str, *revisions: str) -> Callable[[Body], Callable[[Servers, str], None]]:
    """Makes a test of what a scenario checks, in each of its revisions; none given: in both.

    The body runs in the thread where the server's pipes live, so that the tests of a module share one child.
    """
    revisions = revisions or (HANDSHAKE, MODERN)

    def register(body: Body) -> Callable[[Servers, str], None]:
        def test(servers: Servers, revision: str) -> None:
            servers.play(revision, body)

        test.__name__, test.__doc__, test.__module__ = body.__name__, body.__doc__, body.__module__
        for revision in revisions:
            ROWS.setdefault((scenario, revision), []).append(body.__name__)
        named = [pytest.param(revision, id=f"{scenario}@{revision}") for revision in revisions]
        return pytest.mark.parametrize("revision", named)(test)

    return register
