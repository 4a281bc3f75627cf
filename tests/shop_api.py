"""A real FastAPI application, for tests and examples of `from_openapi`: pets with photos, orders, and a recursive tree."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Cookie, FastAPI, File, Form, Header, HTTPException, Query, Request, Response, UploadFile
from fastapi.responses import PlainTextResponse, RedirectResponse
from pydantic import BaseModel, Field

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


class Pet(BaseModel):
    name: str
    kind: Literal["cat", "dog"] = "cat"
    age: int | None = Field(default=None, ge=0)


class Kept(Pet):
    id: int


class Node(BaseModel):
    name: str
    children: list[Node] = []


def make_app() -> FastAPI:
    """Return the application, with two pets."""
    app = FastAPI(title="Pet shop", version="2.1", description="Sells pets.")
    pets = {1: Kept(id=1, name="Tom"), 2: Kept(id=2, name="Rex", kind="dog", age=3)}
    app.state.seen = []

    @app.get("/pets", tags=["pets"])
    def list_pets(
        request: Request,
        response: Response,
        kinds: Annotated[list[str] | None, Query(description="Kinds to list.")] = None,
        page: int = 1,
        limit: int = 10,
    ) -> list[Kept]:
        """Pets, page by page."""
        found = [pet for pet in pets.values() if kinds is None or pet.kind in kinds]
        if len(found) > page * limit:
            response.headers["link"] = f'<{request.url.include_query_params(page=page + 1)}>; rel="next"'
        return found[(page - 1) * limit : page * limit]

    @app.post("/pets", status_code=201, tags=["pets"])
    def add_pet(pet: Pet) -> Kept:
        """Add a pet."""
        kept = pets[len(pets) + 1] = Kept(id=len(pets) + 1, **pet.model_dump())
        return kept

    @app.get("/pets/{pet_id}", tags=["pets"])
    def get_pet(pet_id: int) -> Kept:
        """One pet."""
        if pet_id not in pets:
            raise HTTPException(404, f"there is no pet {pet_id}")
        return pets[pet_id]

    @app.delete("/pets/{pet_id}", status_code=204, tags=["pets"])
    def remove_pet(pet_id: int) -> None:
        pets.pop(pet_id)

    @app.get("/pets/{pet_id}/secrets", tags=["internal"])
    def get_secrets(pet_id: str) -> str:
        return "the owner's address"

    @app.get("/pets/{pet_id}/photo", response_class=Response, responses={200: {"content": {"image/png": {}}}})
    def get_photo(pet_id: int) -> Response:
        return Response(PNG, media_type="image/png")

    @app.post("/pets/{pet_id}/photo")
    async def set_photo(
        pet_id: int, photo: Annotated[UploadFile, File()], title: Annotated[str, Form()] = ""
    ) -> dict[str, object]:
        return {
            "pet": pet_id,
            "name": photo.filename,
            "type": photo.content_type,
            "size": len(await photo.read()),
            "title": title,
        }

    @app.post("/orders")
    def order(pet_id: Annotated[int, Form()], gifts: Annotated[list[str] | None, Form()] = None) -> dict[str, object]:
        return {"pet": pet_id, "gifts": gifts}

    @app.get("/whoami")
    def who_am_i(
        request: Request,
        x_shop: Annotated[str | None, Header()] = None,
        session: Annotated[str | None, Cookie()] = None,
    ) -> dict[str, str | None]:
        return {"authorization": request.headers.get("authorization"), "shop": x_shop, "session": session}

    @app.get("/text", response_class=PlainTextResponse)
    def get_text() -> str:
        return "Open from nine to five."

    @app.get("/tree")
    def get_tree() -> Node:
        return Node(name="root", children=[Node(name="leaf")])

    @app.get("/old-text")
    def get_old_text() -> Response:
        return RedirectResponse("/text")

    @app.get("/away")
    def go_away() -> Response:
        return RedirectResponse("https://evil.example/steal")

    return app
