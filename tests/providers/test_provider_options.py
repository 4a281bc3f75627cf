"""Making a provider: its arguments, where its key comes from, the extra that it needs, and what its repr shows."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from trio_mcp.providers import AnthropicProvider, OpenAIProvider

KEY = "sk-very-secret-0123456789"
PROVIDERS = [AnthropicProvider, OpenAIProvider]
EXTRAS = {AnthropicProvider: "anthropic", OpenAIProvider: "openai"}
VARIABLES = {AnthropicProvider: "ANTHROPIC", OpenAIProvider: "OPENAI"}
both = pytest.mark.parametrize("provider", PROVIDERS)
LOCAL = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for vendor in VARIABLES.values():
        for name in ("API_KEY", "BASE_URL", "AUTH_TOKEN"):
            monkeypatch.delenv(f"{vendor}_{name}", raising=False)


def loads(*lines: str) -> list[set[str]]:
    """The packages of these that a new process has loaded after each of the lines."""
    shown = "print(*{'anthropic', 'openai', 'httpx2'} & set(sys.modules))"
    program = "; ".join(["import sys", *(f"{line}; {shown}" for line in lines)])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return [set(line.split()) for line in done.stdout.split("\n")[: len(lines)]]


# extras


def test_nothing_is_loaded_before_a_provider_is_made() -> None:
    assert loads(
        "import trio_mcp.server, trio_mcp.client, trio_mcp.compose.agent.agent, trio_mcp.providers",
        "from trio_mcp.providers import ScriptedProvider; ScriptedProvider([])",
        "from trio_mcp.providers import AnthropicProvider, OpenAIProvider",
        f"OpenAIProvider(base_url={LOCAL!r})",
    ) == [set(), set(), {"httpx2"}, {"httpx2", "openai"}]
    anthropic = loads("from trio_mcp.providers import AnthropicProvider", f"AnthropicProvider(base_url={LOCAL!r})")
    assert anthropic[-1] == {"httpx2", "anthropic"}


@both
def test_a_missing_extra_is_an_error_that_names_the_command(provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = EXTRAS[provider]
    monkeypatch.delitem(sys.modules, f"trio_mcp.providers.{extra}_client", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Without(extra), *sys.meta_path])
    for name in [name for name in sys.modules if name.partition(".")[0] == extra]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError) as caught:
        provider(base_url=LOCAL)
    assert f'pip install "trio-mcp[{extra}]"' in str(caught.value)
    assert (caught.value.name, caught.value.__cause__, caught.value.__context__) == (extra, None, None)


@both
def test_another_package_that_is_missing_is_named_itself(provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that the official client needs."""
    monkeypatch.delitem(sys.modules, f"trio_mcp.providers.{EXTRAS[provider]}_client", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Without("httpx2"), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "httpx2")
    with pytest.raises(ModuleNotFoundError) as caught:
        provider(base_url=LOCAL)
    assert caught.value.name == "httpx2"


class Without:
    """An importer that finds nothing in the place of one package."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


# arguments


@both
@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"model": 1}, TypeError),
        ({"models": "one"}, TypeError),
        ({"models": [1]}, TypeError),
        ({"base_url": 1}, TypeError),
        ({"base_url": "127.0.0.1:9"}, ValueError),
        ({"base_url": "ftp://127.0.0.1"}, ValueError),
        ({"base_url": "http:///v1"}, ValueError),
        ({"max_retries": -1}, ValueError),
        ({"max_retries": 1.5}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"timeout": "1"}, TypeError),
        ({"backoff": 1}, TypeError),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name(provider: Any, options: dict[str, Any], kind: type) -> None:
    (name,) = options
    with pytest.raises(kind, match=name):
        provider(**{"base_url": LOCAL, **options})


@both
@pytest.mark.parametrize("url", ["http://u:{}@127.0.0.1/v1", "http://127.0.0.1/v1?key={}", "http://127.0.0.1/v1#{}"])
def test_a_base_url_with_a_secret_in_it_is_refused_without_showing_it(provider: Any, url: str) -> None:
    with pytest.raises(ValueError, match="base_url") as caught:
        provider(base_url=url.format(KEY))
    assert KEY not in str(caught.value)


@both
@pytest.mark.parametrize("key", [f"{KEY}\n", f" {KEY}", f"{KEY}\u00e9", f"a\r\nx: {KEY}", KEY.encode(), [KEY]])
def test_a_key_that_cannot_stand_in_a_header_is_refused_without_showing_it(provider: Any, key: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="api_key") as caught:
        provider(base_url=LOCAL, api_key=key)
    assert KEY not in str(caught.value)


# keys


@both
def test_the_vendor_needs_a_key(provider: Any) -> None:
    with pytest.raises(ValueError, match=f"{VARIABLES[provider]}_API_KEY"):
        provider()
    with pytest.raises(ValueError, match=f"{VARIABLES[provider]}_API_KEY"):
        provider(api_key="")
    provider(api_key=KEY)


@both
@pytest.mark.parametrize("options", [{}, {"base_url": LOCAL}])
def test_no_repr_shows_a_key(provider: Any, options: dict[str, Any]) -> None:
    made = provider("large-1", api_key=KEY, models=["small-1"], **options)
    shown = [repr(made), str(made), *map(repr, vars(made).values())]
    assert KEY not in "".join(shown)
    assert "'large-1', 'small-1'" in repr(made)


@both
def test_the_environment_has_the_key_and_the_url(provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{VARIABLES[provider]}_API_KEY", KEY)
    provider()
    monkeypatch.setenv(f"{VARIABLES[provider]}_BASE_URL", "http://127.0.0.1:9/of-the-environment")
    assert "http://127.0.0.1:9/of-the-environment" in repr(provider())
    assert "http://127.0.0.1:9/mine" in repr(provider(base_url="http://127.0.0.1:9/mine"))
