"""Logins in files: who can read them, what becomes of broken ones, and the lock."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import keyring
import keyring.errors
import pytest
import trio
from hypothesis import given, strategies as st
from keyring.backend import KeyringBackend
from refusals import refused

from trio_mcp.auth import AuthorizationError, KeyringTokens, Login, MemoryTokens, TokenFiles, TokenStore
from trio_mcp.auth.client.discovery import ServerMetadata
from trio_mcp.auth.client.grants import Tokens
from trio_mcp.auth.client.registration import Registration
from trio_mcp.auth.client.stored import NO_TOKENS, dump_login, parse_login
from trio_mcp.auth.client.token_files import FOLDER_VARIABLE, LOCK_SECONDS, default_folder
from trio_mcp.errors import AuthorizationErrorKind as Kind

URL = "https://mcp.example/mcp"
ISSUER = "https://as.example"
LOGIN = Login(
    url=URL,
    resource=URL,
    server=ServerMetadata(ISSUER, f"{ISSUER}/token", revocation_endpoint=f"{ISSUER}/revoke", auth_methods=("none",)),
    registration=Registration(ISSUER, "client", "canary-secret", "none", "http://127.0.0.1:1/callback", 5.0),
    tokens=Tokens("canary-access", "bearer", 7.5, "canary-refresh", "a b"),
    requested="a b c",
    dpop_key="canary-key",
)


@pytest.fixture
def files(tmp_path: Path) -> TokenFiles:
    return TokenFiles(tmp_path / "deep" / "auth")


class MemoryKeyring(KeyringBackend):
    """A keyring that lives in this process."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[service, username]


@pytest.fixture(params=["files", "memory", "keyring"])
def store(request: pytest.FixtureRequest, files: TokenFiles, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenStore]:
    if request.param != "keyring":
        yield files if request.param == "files" else MemoryTokens()
        return
    monkeypatch.setenv("TRIO_MCP_AUTH_DIR", str(files.folder))
    before = keyring.get_keyring()
    keyring.set_keyring(MemoryKeyring())
    yield KeyringTokens()
    keyring.set_keyring(before)


async def test_a_keyring_that_cannot_be_used_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(service: str, username: str) -> None:
        raise keyring.errors.KeyringLocked("canary")

    monkeypatch.setattr(keyring, "get_password", locked)
    with refused(Kind.STORE) as caught:
        await KeyringTokens().read(URL)
    assert "canary" not in str(caught.value)


async def test_a_store_returns_what_was_written_last_until_it_is_deleted(store: TokenStore) -> None:
    assert await store.read(URL) is None
    await store.write(LOGIN)
    await store.write(replace(LOGIN, requested="d"))
    other = replace(LOGIN, url="https://a.example/mcp")
    await store.write(other)
    assert await store.read(URL) == replace(LOGIN, requested="d")
    assert await store.urls() == ["https://a.example/mcp", URL]
    await store.delete(URL)
    await store.delete(URL)
    assert await store.read(URL) is None
    assert await store.read(other.url) == other


async def test_a_lock_has_one_holder_and_other_servers_do_not_wait(store: TokenStore, autojump_clock: object) -> None:
    events: list[str] = []

    async def hold(name: str) -> None:
        async with store.lock(URL):
            events.append(f"{name} in")
            await trio.sleep(1)
            events.append(f"{name} out")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, "first")
        await trio.sleep(0.1)
        nursery.start_soon(hold, "second")
        async with store.lock("https://other.example/mcp"):
            events.append("other")
    assert events == ["first in", "other", "first out", "second in", "second out"]


async def test_a_cancelled_wait_for_the_lock_leaves_it_to_others(store: TokenStore, autojump_clock: object) -> None:
    async with store.lock(URL):
        with trio.move_on_after(0.5) as waiting:
            async with store.lock(URL):
                raise AssertionError("two hold the lock")
    assert waiting.cancelled_caught
    with trio.fail_after(1):
        async with store.lock(URL):
            pass


async def test_a_lock_that_is_held_for_too_long_is_an_error(files: TokenFiles, autojump_clock: object) -> None:
    async with files.lock(URL):
        began = trio.current_time()
        with refused(Kind.STORE):
            async with files.lock(URL):
                pass
    assert trio.current_time() - began == pytest.approx(LOCK_SECONDS)


async def test_a_file_system_without_locks_is_an_error_that_names_the_file(
    files: TokenFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    with refused(Kind.STORE, match=r"\.lock"):
        async with files.lock(URL):
            pass


async def test_only_the_user_can_read_the_folder_and_the_files(files: TokenFiles) -> None:
    await files.write(LOGIN)
    async with files.lock(URL):
        pass
    await files.write(LOGIN)
    path = files.file_of(URL)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.with_suffix(".lock").stat().st_mode) == 0o600
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700
    # Nothing else is left: each write replaces the file.
    assert {each.suffix for each in files.folder.iterdir()} == {".json", ".lock"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
async def test_a_file_that_others_can_read_or_write_is_refused_with_what_to_do(files: TokenFiles, mode: int) -> None:
    await files.write(LOGIN)
    files.file_of(URL).chmod(mode)
    with refused(Kind.STORE, match="chmod 600"):
        await files.read(URL)


async def test_a_registration_without_tokens_is_no_login(files: TokenFiles) -> None:
    await files.write(replace(LOGIN, tokens=NO_TOKENS))
    assert await files.read(URL) == replace(LOGIN, tokens=NO_TOKENS)
    assert not files.has(URL)
    assert (files.known_urls(), await files.urls()) == ([], [])
    await files.write(LOGIN)
    assert files.has(URL)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702, 0o720])
async def test_a_folder_that_others_can_write_is_refused_with_what_to_do(files: TokenFiles, mode: int) -> None:
    await files.write(LOGIN)
    files.folder.chmod(mode)
    for use in (files.read, files.delete, lambda _url: files.write(LOGIN), lambda _url: files.urls()):
        with refused(Kind.STORE, match=f"chmod 700 {files.folder}"):
            await use(URL)
    with pytest.raises(AuthorizationError):
        async with files.lock(URL):
            pass
    files.folder.chmod(0o700)
    assert await files.read(URL) == LOGIN


async def test_a_folder_of_another_user_is_refused(files: TokenFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    await files.write(LOGIN)
    monkeypatch.setattr("os.getuid", lambda: files.folder.stat().st_uid + 1)
    with refused(Kind.STORE, match=FOLDER_VARIABLE):
        await files.read(URL)


async def test_a_link_is_neither_read_nor_written(files: TokenFiles, tmp_path: Path) -> None:
    await files.write(LOGIN)
    path, elsewhere = files.file_of(URL), tmp_path / "elsewhere.json"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    for use in (files.read(URL), files.write(LOGIN)):
        with refused(Kind.STORE):
            await use
    path.unlink()
    path.with_suffix(".lock").symlink_to(elsewhere)
    with pytest.raises(AuthorizationError):
        async with files.lock(URL):
            pass


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"version": 2}',
        b'{"version": 1}',
        b"[" * 100_000,
        dump_login(LOGIN).replace('"version": 1', '"version": 2').encode(),
        dump_login(LOGIN).replace('"bearer"', '"mac"').encode(),
        dump_login(LOGIN).replace('"canary-access"', '"canary access"').encode(),
        dump_login(LOGIN).replace("7.5", '"soon"').encode(),
        dump_login(LOGIN).replace("7.5", "true").encode(),
        dump_login(LOGIN).replace('"client_id"', '"other"').encode(),
        dump_login(LOGIN).replace('"registration"', '"other"').encode(),
        b"x" * 300_000,
    ],
)
async def test_a_broken_file_is_an_error_that_shows_nothing_of_it(files: TokenFiles, content: bytes) -> None:
    await files.write(LOGIN)
    files.file_of(URL).write_bytes(content)
    with refused(Kind.STORE) as caught:
        await files.read(URL)
    assert str(files.file_of(URL)) in str(caught.value)
    assert "canary" not in str(caught.value)


async def test_the_file_of_another_server_is_refused(files: TokenFiles) -> None:
    await files.write(LOGIN)
    other = "https://other.example/mcp"
    files.file_of(URL).rename(files.file_of(other))
    with refused(Kind.STORE):
        await files.read(other)


async def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    files = TokenFiles(tmp_path / "file" / "auth")
    with refused(Kind.STORE):
        await files.write(LOGIN)


def test_the_folder_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIO_MCP_AUTH_DIR", "/somewhere")
    assert default_folder() == Path("/somewhere")
    monkeypatch.delenv("TRIO_MCP_AUTH_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_folder() == Path("/state/trio-mcp/auth")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert default_folder() == Path("/home/ada/.local/state/trio-mcp/auth")


def test_a_login_survives_storing(tmp_path: Path) -> None:
    assert parse_login(dump_login(LOGIN), "x") == LOGIN
    assert "canary" not in repr(LOGIN)
    assert json.loads(dump_login(LOGIN)).keys() == {"version", "login"}


texts = st.text(min_size=1, max_size=20)
tokens = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)
times = st.none() | st.floats(0, 1e12)


@given(
    st.builds(
        Login,
        url=texts,
        resource=st.none() | texts,
        server=st.builds(
            ServerMetadata,
            st.just(ISSUER),
            texts,
            revocation_endpoint=st.none() | texts,
            auth_methods=st.none() | st.lists(texts).map(tuple),
        ),
        registration=st.builds(
            Registration, st.just(ISSUER), texts, st.none() | texts, st.none() | texts, st.none() | texts, times
        ),
        tokens=st.builds(
            Tokens, tokens, st.sampled_from(["bearer", "dpop"]), times, st.none() | texts, st.none() | texts
        ),
        requested=st.none() | texts,
        dpop_key=st.none() | texts,
    )
)
def test_any_login_survives_storing(login: Login) -> None:
    assert parse_login(dump_login(login), "x") == login


async def test_a_listing_survives_the_deletion_of_a_file_meanwhile(files: TokenFiles) -> None:
    await files.write(LOGIN)
    path = files.file_of("https://gone.example/mcp")
    os.symlink(files.folder / "nothing.json", path)
    assert files.known_urls() == [URL]


async def test_a_file_that_others_could_read_is_private_after_a_write(files: TokenFiles) -> None:
    await files.write(LOGIN)
    path = files.file_of(URL)
    path.chmod(0o644)
    await files.write(LOGIN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_logins_in_memory_may_be_shared_by_clients_in_several_threads() -> None:
    """Each `SyncClient` has a Trio run in a thread, and they may have the same `auth=`."""
    store, held = MemoryTokens(), list[int]()
    begun = threading.Barrier(4)

    async def hold() -> None:
        begun.wait(5)
        with trio.fail_after(5):
            for _ in range(5):
                async with store.lock(URL):
                    held.append(1)
                    await trio.sleep(0.001)
                    assert held.pop() == 1
                    assert not held

    with ThreadPoolExecutor(4) as threads:
        for run in [threads.submit(trio.run, hold) for _ in range(4)]:
            run.result(10)
