"""The table of open requests of the HTTP client: which request a question came with, and what the end of a request costs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trio_mcp.protocol.jsonrpc import RequestId
from trio_mcp_transports.http.client.exchange import OpenRequest, OpenRequests


def test_a_question_leads_to_the_request_on_whose_response_it_came() -> None:
    requests = OpenRequests()
    first, second = requests.add(1), requests.add(2)
    requests.add_question(first, "a")
    requests.add_question(second, "b")
    assert requests.asked_on("a") is first
    assert requests.asked_on("b") is second
    assert requests.asked_on("c") is None


def test_the_end_of_a_request_is_the_end_of_its_questions_only() -> None:
    requests = OpenRequests()
    first, second = requests.add(1), requests.add(2)
    requests.add_question(first, "a")
    requests.add_question(second, "b")
    requests.remove(first)
    assert requests.asked_on("a") is None
    assert requests.asked_on("b") is second
    assert requests.get(1) is None
    assert len(requests) == 1


def test_a_request_that_reuses_an_id_is_not_removed_with_the_one_before() -> None:
    requests = OpenRequests()
    before = requests.add(1)
    requests.add_question(before, "a")
    after = requests.add(1)
    requests.add_question(after, "a")
    requests.remove(before)
    assert requests.get(1) is after
    assert requests.asked_on("a") is after


def test_a_question_of_a_request_whose_id_is_used_again_leads_nowhere() -> None:
    requests = OpenRequests()
    requests.add_question(requests.add(1), "a")
    requests.add(1)
    assert requests.asked_on("a") is None


class Counting(dict[RequestId, OpenRequest]):
    """Counts the entries that are looked at."""

    looks = 0

    def get(self, key: RequestId, default: None = None) -> OpenRequest | None:  # type: ignore[override]
        self.looks += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[RequestId]:
        self.looks += len(self)
        return super().__iter__()

    def items(self):  # type: ignore[no-untyped-def]
        self.looks += len(self)
        return super().items()


@pytest.mark.parametrize("others", [10, 1000])
def test_the_end_of_a_request_looks_at_its_own_questions_however_many_there_are(others: int) -> None:
    requests = OpenRequests()
    for number in range(others):
        requests.add_question(requests.add(number), f"question {number}")
    ending = requests.add("ending")
    requests.add_question(ending, "own")
    table = requests._asked_on = Counting(requests._asked_on)  # noqa: SLF001
    requests.remove(ending)
    assert len(table) == others
    assert table.looks == 1
