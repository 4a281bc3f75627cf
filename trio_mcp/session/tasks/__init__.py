"""Tasks: calls with a public handle, which outlive the request that started them. Two eras see the same record."""

from typing import TYPE_CHECKING

from ...base import late

if TYPE_CHECKING:
    from . import adoption as adoption, requests as requests, tasks as tasks
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "adoption": "",
            "requests": "",
            "tasks": "",
        },
        in_calls="requests tasks",
    )
