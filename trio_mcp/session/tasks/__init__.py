"""Tasks: calls with a public handle, which outlive the request that started them. Two eras see the same record."""

from typing import TYPE_CHECKING

from ... import late

if TYPE_CHECKING:
    from . import adoption as adoption
    from . import requests as requests
    from . import tasks as tasks
else:
    __getattr__, __dir__ = late.exports(__name__, {"adoption": "", "requests": "", "tasks": ""})
