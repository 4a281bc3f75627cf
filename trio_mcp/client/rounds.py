"""Driving a modern request through its rounds: answer what the server asks, send the request again, until it is done.

The state is echoed byte for byte, never read, and never sent on another request (M-MRTR-8c). The questions of one round are
answered side by side. A handler that fails ends the request: nothing is owed to the server, which is not waiting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

import trio

from ..errors import CapabilityError, LimitExceeded
from ..session import Answerer, ClientSession
from ..types import InputRequest, InputRequiredResult, InputResponseRequestParams, JsonObject, Model

Ask: TypeAlias = Callable[[InputResponseRequestParams], Awaitable[Model]]
"""Sends one request of a call and returns what answers it."""

MAX_ROUNDS = 10
"""Rounds after which a client gives up, as its peers do (protocol.md 3.7)."""

MAX_QUESTIONS = 1000
"""Questions of one round that are answered."""

PACE = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds to wait before answering a round that asks nothing: such a server is not ready yet."""


class Complete(NamedTuple):
    """A complete result, and after how many rounds it came."""

    result: Model
    rounds: int


async def request_in_rounds(
    session: ClientSession,
    ask: Ask,
    params: InputResponseRequestParams,
    answerers: Mapping[str, Answerer],
    max_rounds: int = MAX_ROUNDS,
) -> Complete:
    """Send a request through `ask`, and answer its rounds.

    Raises:
        LimitExceeded: the server asked in more than `max_rounds` rounds.
        CapabilityError: it asked for something this client never declared.

    A cancel withdraws the request that is open and abandons the call.
    """
    current = params
    for number in range(max_rounds + 1):
        result = await ask(current)
        if not isinstance(result, InputRequiredResult):
            return Complete(result, number)
        if number == max_rounds:
            break
        answers = await answered(session, result.input_requests or {}, answerers)
        if not answers:
            await trio.sleep(PACE[min(number, len(PACE) - 1)])
        update = {"input_responses": answers or None, "request_state": result.request_state}
        current = params.model_copy(update=update)
    raise LimitExceeded(f"the server asked in more than {max_rounds} rounds; the limit is max_rounds")


async def answered(
    session: ClientSession, questions: Mapping[str, InputRequest], answerers: Mapping[str, Answerer]
) -> dict[str, JsonObject]:
    """The answers to one round, by key."""
    if len(questions) > MAX_QUESTIONS:
        raise LimitExceeded(f"the server asked {len(questions)} questions at once; the limit is {MAX_QUESTIONS}")
    answers: dict[str, JsonObject] = {}

    async def answer(key: str, question: InputRequest) -> None:
        answerer = answerers.get(question.method)
        if answerer is None:
            raise CapabilityError(f"the server asked for {question.method}, which this client did not declare", {})
        params = question.params
        result = await answerer(params if params is not None else InputResponseRequestParams())
        answers[key] = session.codec.encode_input_response(question.method, result)

    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            for key, question in questions.items():
                nursery.start_soon(answer, key, question)
    except ExceptionGroup as group:
        failure = group.exceptions[0] if len(group.exceptions) == 1 else group
    if failure is not None:  # raised out here, so that it keeps its own context
        raise failure
    return answers
