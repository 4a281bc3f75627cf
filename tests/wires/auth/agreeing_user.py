"""A user who agrees on the page of an OAuth proxy and at the provider behind it.

As a program it is a browser that a client opens: `agreeing_user.py FILE URL`. It writes a line into the file for each login.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import trio

HOPS = 12
"""Redirects between the consent page and the redirect URI, at most."""
WAIT = 20.0
"""Seconds until the client listens at its redirect URI."""


class User:
    """A user, and what their browser was sent to.

    Attributes:
        logins: how often the user agreed.
        urls: where the browser was sent.
    """

    def __init__(self) -> None:
        self.logins = 0
        self.urls: list[str] = []

    async def __call__(self, url: str) -> str:
        """Log in, and return the URL of the redirect to the client."""
        async with httpx2.AsyncClient() as http:
            page = await self._get(http, url)
            (ticket,) = re.findall(r'name="ticket" value="([^"]+)"', page.text)
            form = {"ticket": html.unescape(ticket), "answer": "allow"}
            origin = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
            leaving = await http.post(str(page.url.join("consent")), data=form, headers={"origin": origin})
            self.logins += 1
            (target,) = re.findall(r'http-equiv="refresh" content="0; url=([^"]+)"', leaving.text)
            url = html.unescape(target)
            for _ in range(HOPS):
                response = await self._get(http, url)
                url = str(response.url.join(response.headers["location"]))
                if "/callback?" in url and "/oauth/callback?" not in url:
                    self.urls.append(url)
                    return url
        raise AssertionError("the login does not come to an end")

    async def _get(self, http: httpx2.AsyncClient, url: str) -> httpx2.Response:
        self.urls.append(url)
        return await http.get(url)


async def browse(file: Path, url: str) -> None:
    back = await User()(url)
    with file.open("a") as lines:
        lines.write("login\n")
    async with httpx2.AsyncClient() as http:
        with trio.fail_after(WAIT):
            while True:
                try:
                    await http.get(back)
                    return
                except httpx2.ConnectError:
                    await trio.sleep(0.05)


if __name__ == "__main__":
    trio.run(browse, Path(sys.argv[1]), sys.argv[2])
