"""The name and version of a client or a server."""

from .base import Model
from .content import Icon


class Implementation(Model):
    """The name and version of a program, for display and logs only: no behaviour may depend on it."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    website_url: str | None = None
