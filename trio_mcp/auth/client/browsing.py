"""The part of a login that a user sees: a page is opened in a browser, which is then redirected to this program."""

from __future__ import annotations

import trio

from ...base.groups import UnwrappedErrors
from ...errors import AuthorizationError, AuthorizationErrorKind as Kind
from .flow import NoBrowser, OpenBrowser
from .redirects import RedirectPage
from .steps import Browse
from .stored import login_required


async def browse(open_browser: OpenBrowser, page: RedirectPage, server: str, request: Browse) -> str:
    """Open the page of a login, and return the URL of the redirect, which `page` gets or the program.

    Args:
        server: the URL of the server, for errors.

    Raises:
        AuthorizationError: no page could be opened.
    """
    page.expect(request.state)
    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_open, open_browser, page, server, request.url)
            answer = await page.wait()
            nursery.cancel_scope.cancel()
    return answer


async def _open(open_browser: OpenBrowser, page: RedirectPage, server: str, url: str) -> None:
    try:
        found = await open_browser(url)
        if found is not None:
            page.answer(found)
        return
    except AuthorizationError:
        raise
    except NoBrowser:
        failure = login_required(server, "no browser could be opened", " --no-browser")
    except Exception as error:  # noqa: BLE001  whatever a function of the program raises
        text = f"the function browser= failed with {type(error).__name__}"
        failure = AuthorizationError(text, kind=Kind.LOGIN_REQUIRED)
    # Here, so that the error of the function is not the context of this one: its text may have the URL.
    raise failure
