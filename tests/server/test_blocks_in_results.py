"""Content blocks, images, audio and files that a tool returns: they are blocks of its result in every annotation."""

from __future__ import annotations

import os
import threading
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Optional

import pytest
import trio
from connected import connected
from naming import naming, unnamed
from one_tool import failure_of, result_of
from pydantic import BaseModel
from talk import talk_to
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Audio, File, Image, Server
from trio_mcp.errors import LimitExceeded
from trio_mcp.server.values.media import MAX_FILE, FileToRead, media_block
from trio_mcp.server.values.text_results import return_spec
from trio_mcp.session import Service
from trio_mcp.types import (
    Annotations,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

PNG = b"\x89PNG\r\n\x1a\n..."
IMAGE = Image(data=PNG)
BLOCK = ImageContent(data="aGk=", mime_type="image/png")
LINK = ResourceLink(name="log", uri="file:///log")
TEXT = TextContent(text="x")


class Report(BaseModel):
    total: int
    extra: Any = None


@dataclass
class Note:
    text: str
    extra: Any = None


BARE = object()
"""No annotation."""


async def content_of(annotation: object, value: object, **options: Any) -> list[str]:
    """The blocks of the result: the text of those that are text, the kind of the others."""

    async def tool() -> object:
        return value

    tool.__annotations__["return"] = annotation
    if annotation is BARE:
        tool.__annotations__.clear()
    result = await result_of(tool, **options)
    assert not result.get("isError"), result
    return [block.get("text", block["type"]) for block in result["content"]]


@pytest.mark.parametrize("legacy", [False, True], ids=["modern", "legacy"])
@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (list[ContentBlock], [BLOCK, TEXT], ["image", "x"]),
        (list[ContentBlock], [], []),
        (ContentBlock, BLOCK, ["image"]),
        (list, ["a", BLOCK], ["a", "image"]),
        (list, [BLOCK], ["image"]),
        (list[Any], [{"a": 1}, BLOCK, 5], ['{"a":1}', "image", "5"]),
        (Any, BLOCK, ["image"]),
        (Any, [BLOCK, "a"], ["image", "a"]),
        (Any, IMAGE, ["image"]),
        (object, ("a", IMAGE), ["a", "image"]),
        (tuple, ("a", IMAGE), ["a", "image"]),
        (tuple[str, ImageContent], ("a", BLOCK), ["a", "image"]),
        (tuple[str, Image], ("a", IMAGE), ["a", "image"]),
        (tuple[str, Image | None], ("a", None), ["a"]),
        (tuple[Report, Image], (Report(total=1), IMAGE), ['{"total":1,"extra":null}', "image"]),
        (list[dict[str, int] | Image], [{"a": 1}, IMAGE], ['{"a":1}', "image"]),
        (Report | Image, Report(total=1), ['{"total":1,"extra":null}']),
        (Optional[Image], None, []),  # noqa: UP045
        (Annotated[Image, "a chart"], IMAGE, ["image"]),
        (Sequence[ResourceLink], (LINK,), ["resource_link"]),
        (dict, {"a": 1, "chart": BLOCK}, ['{"a":1}', "image"]),
        (dict[str, Any], {"chart": IMAGE, "b": [1, IMAGE]}, ['{"b":[1]}', "image", "image"]),
        (dict[str, Any], {"chart": BLOCK}, ["image"]),
        (dict[str, ImageContent], {"chart": BLOCK}, ["image"]),
        (dict[str, Image | int], {"chart": IMAGE, "a": 1}, ['{"a":1}', "image"]),
        (BARE, ["a", BLOCK, {"a": 1}], ["a", "image", '{"a":1}']),
        (BARE, [{"a": 1}, BLOCK, "a"], ['{"a":1}', "image", "a"]),
        (BARE, {"a": {"b": [IMAGE, 2]}}, ['{"a":{"b":[2]}}', "image"]),
        (BARE, IMAGE, ["image"]),
    ],
    ids=lambda each: "bare" if each is BARE else str(each),
)
async def test_a_block_is_a_block_in_every_annotation_and_without_one(
    annotation: object, value: object, expected: list[str], legacy: bool
) -> None:
    assert await content_of(annotation, value, legacy=legacy) == expected


async def test_a_dict_keeps_its_structure_without_the_blocks() -> None:
    async def chart() -> dict[str, Any]:
        return {"total": 1, "chart": IMAGE}

    assert (await result_of(chart, name="tool"))["structuredContent"] == {"total": 1}
    raw = await result_of(chart, name="tool", output_schema={"type": "object", "required": ["total"]})
    assert (raw["structuredContent"], [block["type"] for block in raw["content"]]) == ({"total": 1}, ["text", "image"])


@pytest.mark.parametrize(
    "value", [Report(total=1, extra=BLOCK), Note("a", [IMAGE]), {"a": Report(total=1, extra=BLOCK)}]
)
@pytest.mark.parametrize("annotation", [Any, dict[str, Any], None, list], ids=str)
async def test_a_block_in_a_model_is_refused_and_never_sent_as_text(value: Any, annotation: object) -> None:
    def tool() -> Any:
        return [value] if annotation is list else value

    if annotation is None:
        del tool.__annotations__["return"]
    else:
        tool.__annotations__["return"] = annotation
    if annotation == dict[str, Any] and not isinstance(value, dict):
        tool.__annotations__["return"] = type(value)
    assert unnamed(await failure_of(tool, name="tool"), "extra", "ToolResult") == []


class WithBlock(BaseModel):
    chart: ImageContent


class WithImage(BaseModel):
    chart: Image


@dataclass
class Slide:
    chart: list[Image]


@pytest.mark.parametrize("annotation", [WithBlock, list[WithBlock], WithImage, Slide, dict[str, Slide]], ids=str)
def test_a_structure_that_declares_a_block_is_refused_at_registration(annotation: object) -> None:
    def tool() -> None: ...

    tool.__annotations__["return"] = annotation
    with pytest.raises(TypeError, match=naming("tool", "ToolResult")):
        Server("blocks").add_tool(tool)


@pytest.mark.parametrize("annotation", [bytes, bytes | None, list[bytes], dict[str, bytearray]], ids=str)
async def test_bytes_are_refused_at_registration_or_else_in_the_result(annotation: object) -> None:
    def tool() -> None: ...

    tool.__annotations__["return"] = annotation
    cure = ("bytes", "Image(data=")
    with pytest.raises(TypeError, match=naming("tool", "File(data=", *cure)):
        Server("blocks").add_tool(tool)
    assert unnamed(await failure_of(lambda: b"\x89PNG", name="tool"), *cure) == []


def test_what_holds_blocks_promises_no_structure() -> None:
    for annotation in (list[ContentBlock], tuple[str, Image], dict[str, Image], Report | Image, list, Any):
        assert return_spec(annotation).schema is None


# images, audio and files


@pytest.mark.parametrize(
    ("media", "kind", "mime_type"),
    [
        (Image(data=PNG), "image", "image/png"),
        (Image(data=b"\xff\xd8\xff.."), "image", "image/jpeg"),
        (Image(data=b"RIFF0000WEBP"), "image", "image/webp"),
        (Image(data=b"?", format="svg"), "image", "image/svg+xml"),
        (Image(data=b"?", format="jpg"), "image", "image/jpeg"),
        (Image(data=b"?", mime_type="image/x-own"), "image", "image/x-own"),
        (Audio(data=b"RIFF0000WAVE"), "audio", "audio/wav"),
        (Audio(data=b"?", format="mp3"), "audio", "audio/mpeg"),
    ],
    ids=repr,
)
def test_the_type_is_given_or_shown_by_the_first_bytes(media: Any, kind: str, mime_type: str) -> None:
    block = media.block()
    assert (block.type, block.mime_type, block.data) == (kind, mime_type, b64encode(media.data).decode())


@pytest.mark.parametrize(
    ("data", "name", "contents"),
    [
        (b"a,b", "a.csv", TextResourceContents(uri="file:///a.csv", mime_type="text/csv", text="a,b")),
        (b"{}", "a b.json", TextResourceContents(uri="file:///a%20b.json", mime_type="application/json", text="{}")),
        (b"\xff", "a.txt", BlobResourceContents(uri="file:///a.txt", mime_type="text/plain", blob="/w==")),
        (b"%PDF", "a.pdf", BlobResourceContents(uri="file:///a.pdf", mime_type="application/pdf", blob="JVBERg==")),
        (b"a", "a", BlobResourceContents(uri="file:///a", mime_type="application/octet-stream", blob="YQ==")),
    ],
)
def test_a_file_is_text_if_it_has_a_text_type(data: bytes, name: str, contents: object) -> None:
    assert File(data=data, name=name).block() == EmbeddedResource(resource=contents)  # type: ignore[arg-type]


def test_a_file_may_have_a_uri_and_hints() -> None:
    hints = Annotations(priority=1)
    block = File(data=b"a", uri="report://7", mime_type="text/plain", annotations=hints).block()
    assert (block.resource.uri, block.annotations) == ("report://7", hints)


@pytest.mark.parametrize(
    ("make", "error", "names"),
    [
        (Image, TypeError, ["path", "data="]),
        (lambda: Image("a.png", data=b""), TypeError, ["path", "data="]),
        (lambda: Image(b"a"), TypeError, ["path", "data="]),
        (lambda: Image(data="aGk="), TypeError, ["bytes", "base64"]),
        (lambda: File(data=b"a"), TypeError, ["name="]),
        (lambda: Image(data=b"?"), ValueError, ["mime_type="]),
        (lambda: Image("a.txt"), ValueError, ["mime_type="]),
        (lambda: Image("a"), ValueError, ["mime_type="]),
        (lambda: Audio(data=PNG), ValueError, ["mime_type="]),
    ],
)
def test_a_wrong_argument_and_an_unknown_type_are_refused(make: Any, error: type[Exception], names: list[str]) -> None:
    with pytest.raises(error, match=naming(*names)):
        make()


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    path = tmp_path / "chart.png"
    path.write_bytes(PNG)
    return path


@pytest.mark.parametrize("legacy", [False, True], ids=["modern", "legacy"])
async def test_a_file_is_read_from_its_path_and_its_folder_is_not_shown(chart: Path, legacy: bool) -> None:
    async def tool() -> list[Any]:
        return ["a", Image(chart), {"b": File(str(chart))}]

    result = await result_of(tool, legacy=legacy)
    _, image, file = result["content"]
    assert (image["data"], image["mimeType"]) == (b64encode(PNG).decode(), "image/png")
    assert (file["resource"]["uri"], file["resource"]["blob"]) == ("file:///chart.png", image["data"])
    assert str(chart.parent) not in str(result)


async def test_a_file_is_never_read_in_the_event_loop(chart: Path) -> None:
    with pytest.raises(FileToRead):
        media_block(Image(chart))
    # In a thread it is, and what was allowed there is not allowed here.
    server = Server("files")
    server.add_tool(lambda: Image(chart), name="tool")
    async with talk_to(server) as talk:
        await talk.result(talk.leg("tool", {}))
    with pytest.raises(FileToRead):
        media_block(Image(chart))


@pytest.mark.parametrize("make", [Image, Audio, File])
def test_only_a_regular_file_is_read_and_nothing_waits_for_another(tmp_path: Path, make: Any) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    names = [make.__name__, "path=", str(pipe)]
    options = {"mime_type": "audio/wav"} if make is Audio else {}
    with pytest.raises(ValueError, match=naming(*names)):
        make(pipe, **options).block()


def test_a_file_that_says_that_it_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    with path.open("wb") as file:
        file.truncate(1000 * MAX_FILE)
    with pytest.raises(LimitExceeded, match=str(MAX_FILE)):
        Image(path).block()


async def test_a_file_is_read_in_a_counted_thread_which_a_cancel_abandons(
    chart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go = threading.Event(), threading.Event()
    read = Image.read

    def slow_read(image: Image) -> bytes:
        reading.set()
        go.wait(10)
        return read(image)

    monkeypatch.setattr(Image, "read", slow_read)
    server = Server("files")

    async def tool() -> Image:
        return Image(chart)

    server.add_tool(tool)
    async with talk_to(server) as talk:
        try:
            await talk.initialize()
            call = talk.call("tool")
            await trio.to_thread.run_sync(reading.wait, 10)
            assert counted(talk.service) == (1, 0)
            talk.cancel(call)
            await wait_all_tasks_blocked()
            assert counted(talk.service) == (1, 1)
        finally:
            go.set()


def counted(service: Service) -> tuple[int, int]:
    threads = service.statistics().threads
    return threads.running, threads.abandoned


async def test_a_file_that_is_missing_is_an_internal_error_without_its_path(tmp_path: Path) -> None:
    assert str(tmp_path) not in await failure_of(lambda: Image(tmp_path / "none.png"), name="tool")


async def test_a_prompt_may_hold_images_too(chart: Path) -> None:
    server = Server("prompts")
    server.add_prompt(lambda: ["Describe this:", Image(chart)], name="describe")
    async with connected(server) as client:
        messages = (await client.get_prompt("describe")).messages
    assert [message.content.type for message in messages] == ["text", "image"]
