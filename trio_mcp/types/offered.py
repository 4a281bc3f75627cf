"""What tools, prompts and resources have in common: names, descriptions and icons."""

from typing import Literal

from .base import MetaModel, Model


class Icon(Model):
    """An image to show beside a name; `src` is an https or data URI."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Offered(MetaModel):
    """The members that tools, prompts, resources and resource templates share."""

    name: str
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
