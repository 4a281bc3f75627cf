"""Clients in a notebook of Jupyter, in a real kernel: `Client` with `await` at the top level, and `SyncClient`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from serving import IMPORTS

BOUND = 60

pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

import nbformat  # noqa: E402
from nbclient import NotebookClient  # noqa: E402

BEGIN = """
import asyncio, os, signal
from trio_mcp import Client, Context, Server, SyncClient, accept
from trio_mcp.bridge.guest import current_guest

server = Server("shop", asyncio=True)


@server.tool
async def buy(item: str, ctx: Context) -> str:
    number = await ctx.elicit.strict("How many?", int)
    return f"{number} of {item}"


@server.tool
async def wait() -> None:
    '''Interrupt the kernel, as its user does.'''
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()


async def answer(asked):
    await asyncio.sleep(0)
    return accept(value=2)


def handlers():
    return {number: signal.getsignal(number) for number in signal.Signals if number not in (signal.SIGKILL, signal.SIGSTOP)}


before = handlers()
"""
END = """
assert current_guest() is None
assert handlers() == before
"""


def run(folder: Path, *cells: str) -> list[Sequence[dict[str, str]]]:
    """Run the cells of a notebook; return the outputs of those between the first and the last."""
    sources = [BEGIN, *cells, END]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=BOUND, kernel_name="python3", resources=resources)
    client.execute(env={**os.environ, **IMPORTS, "IPYTHONDIR": str(folder)})
    return [cell.outputs for cell in notebook.cells[1:-1]]


def test_a_client_is_kept_open_over_cells_with_await_at_the_top_level(tmp_path: Path) -> None:
    outputs = run(
        tmp_path,
        "client = Client.connect(server, on_elicit=answer)\nawait client.open()",
        "(await client.call_tool('buy', {'item': 'lamp'})).text",
        "try:\n    await client.call_tool('wait')\nexcept BaseException as error:\n    print(type(error).__name__)",
        "(await client.call_tool('buy', {'item': 'table'})).text",
        "await client.aclose()",
    )
    texts = [output["data"]["text/plain"] if "data" in output else output["text"] for (output,) in outputs[1:4]]
    # An interrupt of the kernel ends the call alone.
    assert texts == ["'2 of lamp'", "CancelledError\n", "'2 of table'"]


def test_a_sync_client_works_in_a_cell(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(BEGIN)
    _, ((output),) = run(
        tmp_path,
        "client = SyncClient.connect('shop.py', on_elicit=lambda asked: accept(value=3))\nclient.open()",
        "text = client.call_tool('buy', {'item': 'lamp'}).text\nclient.close()\ntext",
    )
    assert output["data"]["text/plain"] == "'3 of lamp'"
