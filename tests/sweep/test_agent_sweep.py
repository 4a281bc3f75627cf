"""An agent that is interrupted at any step leaves no call, no task and no open request to its model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from scripted_model import ScriptedModel, use
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import Client, run_agent
from trio_mcp.compose import AgentCall
from trio_mcp.types import CreateMessageRequestParams, CreateMessageResult


class SlowModel(ScriptedModel):
    """A model that counts the requests that are open."""

    open_requests = 0

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        SlowModel.open_requests += 1
        try:
            await trio.sleep(0.1)
            return await super().sample(request)
        finally:
            SlowModel.open_requests -= 1


async def approve(_call: AgentCall) -> bool:
    await trio.sleep(0.1)
    return True


async def an_agent(client: Client) -> None:
    model = SlowModel([use("plain", "1"), use("asking", "2"), use("sleeping", "3"), use("nothing", "4")], "done")
    result = await run_agent(model, "?", [client], approve=approve, max_parallel=2)
    assert result.text == "done"


@pytest.mark.parametrize("mode", [NEWEST_LEGACY, MODERN])
def test_an_agent_leaves_nothing_wherever_it_is_interrupted(swept: Callable[..., None], mode: str) -> None:
    swept(an_agent, mode)
    assert SlowModel.open_requests == 0
