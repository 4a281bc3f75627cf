"""The pages that the user of an `OAuthProxy` sees: plain HTML without scripts, and what goes with it in the headers."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from types import MappingProxyType
from typing import Final
from urllib.parse import urlencode, urlsplit

from ...base.values import one_line
from ...http import HttpResponse
from ..addresses import is_loopback
from ..uris import split_url
from .sealed import Client, Login

# The last rules are about a window of an attacker that covers the page, and closes at the first click of a double-click: the
# buttons take clicks a second after the page was loaded, the mouse came, or it clicked beside them. Keys work at once.
STYLE: Final = """\
:root { color-scheme: light dark; --text: #1d2329; --soft: #59636e; --page: #f4f5f7; --card: #fff; --line: #d5dae0;
  --main: #1557b0; --on-main: #fff; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ed; --soft: #a3adb8; --page: #14171a; --card: #1f2429;
  --line: #3b434c; --main: #8ab8f5; --on-main: #10151b; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1rem; background: var(--page); color: var(--text); font: 1rem/1.5 system-ui, sans-serif; }
main { max-width: 30rem; margin: 6vh auto 0; padding: 1.5rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; overflow-wrap: anywhere; }
h1 { margin: 0 0 1rem; font-size: 1.3rem; line-height: 1.3; }
dt { color: var(--soft); font-size: .9rem; }
dd { margin: 0 0 .9rem; font-weight: 600; overflow: hidden; }
ul { margin: 0; padding-left: 1.2rem; }
form { display: flex; flex-wrap: wrap; gap: .75rem; margin-top: 1.5rem; }
button, a.button { flex: 1 1 9rem; padding: .7rem 1rem; border: 1px solid var(--main); border-radius: 8px; font: inherit;
  font-weight: 600; text-align: center; text-decoration: none; cursor: pointer; color: var(--main); background: none; }
.main { color: var(--on-main) !important; background: var(--main) !important; }
:focus-visible { outline: 3px solid var(--main); outline-offset: 2px; }
.note { color: var(--soft); font-size: .9rem; }
form { animation: wait 1s; }
@keyframes wait { from, to { pointer-events: none; } }
@media (hover: hover) and (pointer: fine) {
  main:not(:hover) form, main:active:not(:has(button:active)) form { animation: none; pointer-events: none; } }
"""

HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "content-security-policy": "default-src 'none'; "
        f"style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        "x-frame-options": "DENY",
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
        # Not "no-referrer": the form would then be posted with `Origin: null`.
        "referrer-policy": "same-origin",
    }
)

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
{head}<style>{style}</style>
<main>
<h1>{title}</h1>
{body}
</main>
</html>
"""

_CONSENT: Final = """\
<dl>
<dt>The program calls itself</dt><dd><bdi>{name}</bdi></dd>
{publisher}<dt>It gets access to</dt><dd>{resource}</dd>
<dt>It may use</dt><dd>{scopes}</dd>
<dt>You are sent back to</dt><dd>{place}</dd>
</dl>
<p class="note">Continue only if you have just started this in that program. Anyone can choose the name of a program; check
where you are sent back to. You log in at {provider} next.</p>
<form method="post" action="consent">
<input type="hidden" name="ticket" value="{ticket}">
<button class="main" name="answer" value="allow">Continue with {provider}</button>
<button name="answer" value="deny">Cancel</button>
</form>"""


def consent_page(
    client: Client, client_id: str, login: Login, *, resource: str, provider: str, sealed: str, cookie: str
) -> HttpResponse:
    """Return the page on which the user agrees to a login.

    Args:
        client_id: a sealed one, or the URL of its metadata.
        provider: its name.
        sealed: the ticket in the form.
        cookie: the header `Set-Cookie`.
    """
    host = urlsplit(client_id).netloc
    scopes = "".join(f"<li>{escape(scope)}</li>" for scope in login.scopes)
    body = _CONSENT.format(
        name=shown(client.name) or "(no name)",
        # Not beside the name: a program that registers could call itself "App, of app.example.com".
        publisher=f"<dt>Its details are published at</dt><dd>{escape(host)}</dd>\n" if host else "",
        resource=escape(resource),
        scopes=f"<ul>{scopes}</ul>" if scopes else "what needs no scope",
        place=place_of(login.redirect_uri),
        provider=escape(provider),
        ticket=sealed,
    )
    return _page("Let this program log in?", body, headers={"set-cookie": cookie})


def leaving_page(url: str, where: str) -> HttpResponse:
    """Return the page that sends the browser on after the form.

    It is no redirect: Chromium compares each redirect after a form with `form-action`, also those of the provider.
    """
    target = escape(url)
    body = f'<p>If nothing happens: <a class="button" href="{target}">go on</a></p>'
    return _page(f"Going on to {where}", body, head=f'<meta http-equiv="refresh" content="0; url={target}">\n')


def error_page(why: str, status: int = 400) -> HttpResponse:
    """Return the page for a login that cannot go on; the browser is not sent anywhere."""
    return _page("This login cannot go on", f"<p>{escape(why)}</p>", status)


def redirect(url: str) -> HttpResponse:
    """Return a redirect to a URL that may have a secret in it."""
    headers = {"location": url, "cache-control": "no-store", "referrer-policy": "no-referrer"}
    return HttpResponse("", 302, headers=headers)


def with_query(url: str, parameters: Mapping[str, str | None]) -> str:
    """Return a URL with parameters added to its query; those that are None are left out."""
    added = urlencode({name: value for name, value in parameters.items() if value is not None})
    return f"{url}{'&' if '?' in url else '?'}{added}"


def shown(text: str) -> str:
    """Return a text of a client for a page: escaped, in one line and without a change of direction."""
    return escape(one_line(text))


def place_of(redirect_uri: str) -> str:
    """Return, as HTML, where the browser goes at the end of a login."""
    parts = split_url(redirect_uri)
    here = is_loopback(parts.hostname or "")
    return escape(f"a program on this computer ({parts.netloc})" if here else parts.netloc)


def _page(
    title: str, body: str, status: int = 200, *, head: str = "", headers: Mapping[str, str] = MappingProxyType({})
) -> HttpResponse:
    text = _PAGE.format(title=escape(title), head=head, style=STYLE, body=body)
    return HttpResponse(text, status, "text/html; charset=utf-8", {**HEADERS, **headers})
