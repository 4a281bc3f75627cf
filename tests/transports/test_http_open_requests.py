"""The table of open requests of the HTTP client: which request a question came with, and what the end of a request ends."""

from __future__ import annotations

from trio_mcp_transports.http.client.exchange import OpenRequests


def test_a_question_leads_to_the_request_on_whose_response_it_came() -> None:
    requests = OpenRequests()
    first, second = requests.add(1), requests.add(2)
    first.questions.add("a")
    second.questions.add("b")
    assert requests.asked_on("a") is first
    assert requests.asked_on("b") is second
    assert requests.asked_on("c") is None


def test_the_end_of_a_request_is_the_end_of_its_questions_only() -> None:
    requests = OpenRequests()
    first, second = requests.add(1), requests.add(2)
    first.questions.add("a")
    second.questions.add("b")
    requests.remove(first)
    assert requests.asked_on("a") is None
    assert requests.asked_on("b") is second
    assert requests.get(1) is None
    assert len(requests) == 1


def test_a_request_that_reuses_an_id_is_not_removed_with_the_one_before() -> None:
    requests = OpenRequests()
    before = requests.add(1)
    before.questions.add("a")
    after = requests.add(1)
    after.questions.add("a")
    requests.remove(before)
    assert requests.get(1) is after
    assert requests.asked_on("a") is after


def test_a_question_of_a_request_whose_id_is_used_again_leads_nowhere() -> None:
    requests = OpenRequests()
    requests.add(1).questions.add("a")
    requests.add(1)
    assert requests.asked_on("a") is None
