"""The `asgi.py` of docs/asyncio.md, with a project of Django on uvicorn: pages of Django, and tools that use its models."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest
from pages import Page
from serving import child

from trio_mcp import Client, accept

pytest.importorskip("django", reason="Django is not installed")

BOUND = 60.0
SETTINGS = """
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
"""
MODELS = """
from django.db import models


class Item(models.Model):
    name = models.CharField(max_length=20)
    price = models.IntegerField()
"""
URLS = """
from django.http import HttpResponse
from django.urls import path

urlpatterns = [path("", lambda request: HttpResponse("a page of Django"))]
"""
TOOLS = """
from trio_mcp import Context, Server

from .models import Item

server = Server("shop", asyncio=True)


@server.tool
async def order(item: str, ctx: Context) -> str:
    found = await Item.objects.aget(name=item)
    number = await ctx.elicit.strict(f"How many for {found.price}?", int)
    await Item.objects.filter(name=item).aupdate(price=found.price + 1)
    return f"{number} for {number * found.price}"


@server.tool
def price(item: str) -> int:
    return Item.objects.get(name=item).price
"""
SERVE = """
import os, socket

os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"

import uvicorn
from shop.asgi import application
from django.db import connection
from shop.models import Item

with connection.schema_editor() as editor:
    editor.create_model(Item)
Item.objects.create(name="lamp", price=3)
connection.close()
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(application, log_level="warning")).run(sockets=[listening])
"""


def write_project(folder: Path) -> Path:
    (recipe,) = (
        block for block in re.findall(r"```py\n(.*?)```", Page("asyncio").text, re.DOTALL) if "django" in block
    )
    modules = {"__init__": "", "settings": SETTINGS, "models": MODELS, "urls": URLS, "tools": TOOLS, "asgi": recipe}
    (folder / "shop").mkdir()
    for name, text in modules.items():
        (folder / "shop" / f"{name}.py").write_text(text)
    (folder / "serve.py").write_text(SERVE)
    return folder / "serve.py"


async def test_a_tool_beside_django_uses_its_models(tmp_path: Path) -> None:
    async with (
        child(write_project(tmp_path), limit=BOUND, strict=False, cwd=tmp_path) as host,
        httpx2.AsyncClient() as http,
    ):
        url = (await host.line()).decode()
        assert (await http.get(url)).text == "a page of Django"
        assert (await http.get(f"{url}/elsewhere")).status_code == 404
        for mode, price in (("modern", 3), ("legacy", 4)):
            async with Client.connect(f"{url}/tools/mcp", mode=mode, on_elicit=lambda _: accept(value=2)) as client:
                assert (await client.call_tool("order", {"item": "lamp"})).text == f"2 for {2 * price}"
                assert (await client.call_tool("price", {"item": "lamp"})).data == price + 1
        host.process.terminate()
        await host.end()
        assert b"Traceback" not in await host.errors()
