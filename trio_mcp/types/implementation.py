"""The name and version of a client or a server."""

from typing import Annotated

from .base import MAX_RECEIVED, Model, at_most
from .content import Icon


class Implementation(Model):
    """The name and version of a program, for display and logs only: no behaviour may depend on it."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    icons: Annotated[list[Icon] | None, at_most(MAX_RECEIVED)] = None
    website_url: str | None = None
