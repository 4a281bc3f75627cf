"""The cookies of one server, which a client sends back: load balancers find the process of a session by them."""

from __future__ import annotations

import re
from http.cookiejar import Cookie, CookieJar
from typing import Final

MAX_COOKIES: Final = 50
MAX_COOKIE: Final = 4096
"""Characters of the name, the value, the domain and the path of a cookie."""
SENDABLE: Final = re.compile(r"[ -~]*")
"""What a header of a request can have: the library raises an error for other characters, with each later request."""


class ServerCookies(CookieJar):
    """Keeps cookies that can be sent, up to `MAX_COOKIES`. Any other is ignored."""

    def set_cookie(self, cookie: Cookie) -> None:
        """Keep a cookie; one of the same name, domain and path is replaced."""
        texts = (cookie.name, cookie.value or "", cookie.domain, cookie.path)
        if sum(map(len, texts)) > MAX_COOKIE or not all(map(SENDABLE.fullmatch, texts)):
            return
        others = [each for each in self if place_of(each) != place_of(cookie)]
        if len(others) < MAX_COOKIES:
            super().set_cookie(cookie)


def place_of(cookie: Cookie) -> tuple[str, str, str]:
    return cookie.domain, cookie.path, cookie.name
