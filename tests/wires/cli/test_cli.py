"""`trio-mcp` as a person meets it: what it serves, what it calls, what it asks, and what it says to mistakes."""

from __future__ import annotations

import json
import signal
from itertools import product
from pathlib import Path

import pytest
from command import (
    ENVIRONMENT,
    FORMS,
    ROOT,
    TRAVEL,
    Person,
    announced,
    refused,
    running,
    server_file,
    started,
    trio_mcp,
)
from naming import unnamed

BOOKED = "Booked TP3 to Lisbon at 12:15, aisle seat, 89 euros. It will be sunny in Lisbon.\n"
ANSWERS = ["--answer", "flight=TP3", "--answer", "seat=aisle", "--answer", "value=yes", "--sample", "A hop."]


# calling


@pytest.mark.parametrize("mode", ["auto", "legacy", "2025-06-18", "2026-07-28"])
def test_prepared_answers_book_a_flight_in_every_era(mode: str) -> None:
    done = trio_mcp("call", "--mode", mode, TRAVEL, "book_flight", "destination=Lisbon", *ANSWERS)
    assert (done.returncode, done.stdout) == (0, BOOKED), done.stderr
    assert "travel asks: A hop. It will be sunny in Lisbon. Book TP3 (aisle) for 89 euros?" in done.stderr
    assert "[1/3] 3 flights found" in done.stderr
    assert "[info] booked TP3" in done.stderr


CALLS: list[tuple[list[str], object]] = [
    ([TRAVEL, "list_folders", "--root", str(ROOT)], [ROOT.as_uri()]),
    (
        [FORMS, "take", "--args", '{"text": "a", "number": 1, "anything": null}', "text=5", "number=2.5", "flag=true"],
        ["5", 2.5, True, None],
    ),
]


@pytest.mark.parametrize(("arguments", "result"), CALLS, ids=["roots", "JSON and pairs"])
def test_a_call_prints_the_result(arguments: list[str], result: object) -> None:
    assert json.loads(trio_mcp("call", *arguments).stdout) == result


def test_tools_are_listed_with_their_arguments() -> None:
    done = trio_mcp("call", FORMS, "--list")
    assert done.returncode == 0
    assert "take text=string number=number [flag=boolean] [anything=any]\n    Show the arguments.\n" in done.stdout


def test_without_a_terminal_a_question_is_declined_with_a_note() -> None:
    done = trio_mcp("call", TRAVEL, "book_flight", "destination=Lisbon")
    assert (done.returncode, done.stdout) == (0, "Nothing was booked.\n")
    assert "declined" in done.stderr
    assert "--answer for flight, seat" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fail"], "the tool answered with an error: the tank is empty"),
        (["take", "text=a", "number=many"], "Invalid arguments for take: number:"),
    ],
    ids=["the tool's", "of the arguments"],
)
def test_an_error_result_goes_to_stderr_with_status_1(arguments: list[str], said: str) -> None:
    done = trio_mcp("call", FORMS, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr


def test_what_a_server_writes_cannot_command_the_terminal() -> None:
    with Person("call", FORMS, "escape") as person:
        person.sees("[warning] \ufffd[2Jlog")
        person.sees("\ufffd[31mred")
        assert person.waits() == 0
    assert trio_mcp("call", FORMS, "escape").stdout == "\x1b[31mred\n"


def test_a_signal_cancels_the_call_at_the_server() -> None:
    with started("call", FORMS, "hang") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "hanging\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        assert "cancelled at the server" in said
        assert "Traceback" not in said
        assert process.returncode == 130


# asking at the terminal

NAME = "name (text, at least 2 characters): "
MODEL = "your answer as the model: "
TRIP = ["call", TRAVEL, "book_flight"]
TALKS: dict[str, tuple[list[str], list[tuple[str, str]], int]] = {
    "a person books a flight": (
        [*TRIP, "destination=Lisbon"],
        [
            ("travel asks: 3 flights to Lisbon. Which one?", ""),
            ("flight (TP1, TP3, TP5): ", "tp3\n"),
            ("seat (window, aisle) [window]: ", "\n"),
            ("user: In one line: a flight that leaves at 12:15.", ""),
            (MODEL, "A lunch with a view.\n"),
            ("A lunch with a view. It will be sunny in Lisbon. Book TP3 (window) for 89 euros?", ""),
            ("y or n: ", "y\n"),
            ("Booked TP3 to Lisbon", ""),
        ],
        0,
    ),
    "an answer that does not fit is asked for again": (
        ["call", FORMS, "register"],
        [
            ("As in the passport", ""),
            (NAME, "A\n"),
            ("please enter text, at least 2 characters", ""),
            (NAME, "Ada\n"),
            ("age (a whole number 18 to 99): ", "36\n"),
            ("email (an e-mail address): ", "ada@example.com\n"),
            ("meal (fish, beans) [beans]: ", "FISH\n"),
            ("several by commas): ", "bag, wifi\n"),
            ("window (y or n) [y]: ", "no\n"),
            ("note (text) [leave out]: ", "\n"),
            ('{"name":"Ada","age":36,"email":"ada@example.com","meal":"fish","extras":["bag","wifi"],', ""),
            ('"window":false,"note":null}', ""),
        ],
        0,
    ),
    "what the command line answers is not asked": (
        [*TRIP, "destination=Oslo", *ANSWERS[2:], "--answer", "flight=SK8"],
        [("flight: SK8", ""), ("Booked SK8 to Oslo at 09:30, aisle seat", "")],
        0,
    ),
    "Ctrl-C at a question ends the command": (["call", FORMS, "register"], [(NAME, "\x03")], 130),
    "Ctrl-D refuses to answer as the model": (
        ["call", "--mode", "2026-07-28", FORMS, "ask_model"],
        [
            ("system: Be brief.", ""),
            (MODEL, "\x04"),
            ("trio-mcp: The user rejected the sampling request", ""),
        ],
        4,
    ),
    "a legacy tool learns that the model was not asked": (
        ["call", "--mode", "legacy", FORMS, "ask_model"],
        [(MODEL, "\x04"), ("instead of its model's answer: The user rejected the sampling request", "")],
        1,
    ),
    "run waits for a host": (["run", TRAVEL], [("travel serves MCP on stdin", "\x04")], 0),
    **{
        f"{mode}: a question is answered with {keys!r}": (
            ["call", "--mode", mode, FORMS, "register"],
            [(NAME, keys), (f"it was {action}", "")],
            0,
        )
        for mode in ("legacy", "modern")
        for keys, action in (
            ("!decline\n", "decline"),
            ("!cancel\n", "cancel"),
            ("\x04", "cancel"),
            ("Ada\n!decline\n", "decline"),
        )
    },
    **{
        f"a form without fields is answered with {keys!r}": (
            ["call", FORMS, "erase"],
            [("accept (y or n): ", keys), (f"it was {action}", "")],
            0,
        )
        for keys, action in (("y\n", "accept"), ("n\n", "decline"), ("\x04", "cancel"))
    },
}
"""What a person sees and presses in turn, and the status in the end."""


@pytest.mark.parametrize("talk", TALKS)
def test_a_person_at_a_terminal(talk: str) -> None:
    words, exchanges, status = TALKS[talk]
    with Person(*words) as person:
        for seen, pressed in exchanges:
            person.sees(seen)
            person.presses(pressed)
        assert person.waits() == status
        assert "Traceback" not in person.screen


@pytest.mark.parametrize(("answer", "action"), [("y", "accept"), ("n", "decline"), (None, "decline")])
def test_a_confirmation_is_never_given_silently(answer: str | None, action: str) -> None:
    prepared = [] if answer is None else ["--answer", f"accept={answer}"]
    done = trio_mcp("call", FORMS, "erase", *prepared)
    assert (done.returncode, done.stdout) == (0, f"it was {action}\n")
    assert ("no --answer for accept" in done.stderr) is (answer is None)


# serving


def test_run_serves_the_only_server_of_a_file(tmp_path: Path) -> None:
    file = server_file(tmp_path, 'print("loading")\nshop = Server("shop")\nsame = shop\n')
    done = trio_mcp("call", running(file), "--list")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "loading\n")


def test_run_serves_the_server_that_is_named(tmp_path: Path) -> None:
    hello = '@two.tool\ndef hello() -> str:\n    return "hi"\n'
    file = server_file(tmp_path, f'one = Server("one")\ntwo = Server("two")\n\n{hello}')
    done = trio_mcp("call", running(f"{file}:two"), "hello")
    assert (done.returncode, done.stdout) == (0, "hi\n")


@pytest.mark.parametrize(("option", "path"), [(["--path", "/travel"], "/travel"), (["--sse"], "/sse")], ids=str)
def test_serve_serves_over_every_wire_until_a_signal(option: list[str], path: str) -> None:
    with started("serve", TRAVEL, "--port", "0", *option, "--drain", "1") as process:
        url = announced(process)
        assert url.endswith(path)
        wires = (url,) if path == "/sse" else (url, url.replace("http:", "ws:"))
        for target, mode in product(wires, ("legacy", "auto")):
            done = trio_mcp("call", target, "book_flight", "destination=Lisbon", "--mode", mode, *ANSWERS)
            assert (done.returncode, done.stdout) == (0, BOOKED), done.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_serve_serves_several_servers_by_path_and_passes_on_one_of_them() -> None:
    forms = running(FORMS)
    with started("serve", f"/travel={TRAVEL}", f"/forms={forms}", "--port", "0", "--drain", "1") as process:
        travel, far = announced(process), announced(process)
        assert (travel.rpartition("/travel")[2], far.rpartition("/forms")[2]) == ("/mcp", "/mcp")
        done = trio_mcp("call", travel, "book_flight", "destination=Lisbon", *ANSWERS)
        assert (done.returncode, done.stdout) == (0, BOOKED), done.stderr
        done = trio_mcp("call", far, "take", "text=a", "number=1")
        assert json.loads(done.stdout) == ["a", 1, False, None], done.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_the_lifespan_that_fails_is_named_with_the_file_of_its_server(tmp_path: Path) -> None:
    file = server_file(
        tmp_path,
        """
from contextlib import asynccontextmanager
@asynccontextmanager
async def lifespan(server):
    raise ValueError("no database")
    yield
server = Server("x", lifespan=lifespan)
""",
    )
    said = refused(3, "serve", f"/travel={TRAVEL}", f"/x={file}", "--port", "0")
    assert unnamed(said, f"{file}, line", "ValueError: no database") == []


# mistakes

BOOK = ["call", TRAVEL, "book_flight"]
MISTAKES: list[tuple[int, list[str], list[str]]] = [
    (3, ["run", "no.py"], ["there is no file no.py"]),
    (3, ["serve", "no.py:server"], ["there is no file no.py"]),
    (3, ["call", "no.py", "tool"], ["there is no file no.py"]),
    (2, ["call", "htp://127.0.0.1:8000/mcp", "tool"], ["'htp://127.0.0.1:8000/mcp'", "http, https, ws, wss"]),
    (3, ["call", "http://127.0.0.1:9/mcp", "tool"], ["http://127.0.0.1:9/mcp", "Connection refused"]),
    (3, ["call", "ws://127.0.0.1:9/mcp", "tool"], ["ws://127.0.0.1:9/mcp", "Connection refused"]),
    (3, ["call", "WS://127.0.0.1:9/mcp", "tool"], ["Connection refused"]),
    (3, ["call", "no-such-command --now", "tool"], ["no-such-command"]),
    (3, ["call", "true", "tool"], ["closed the connection"]),
    (2, ["call", TRAVEL, "book"], ["no tool 'book'", "search_flights, book_flight, list_folders"]),
    (2, [*BOOK, "destination=Lisbon", "--answer", "flight=XX"], ["--answer flight=XX", "TP1, TP3, TP5"]),
    (4, ["call", TRAVEL, "list_folders"], ["--root FOLDER"]),
    (4, ["call", FORMS, "ask_model", "--mode", "legacy"], ["--sample TEXT"]),
    (4, ["call", FORMS, "hang", "--timeout", "2"], ["timed out", "2 seconds"]),
    (2, ["call", FORMS, "take", "text=a", "number=1e999"], ["number is inf"]),
    (2, ["call", "http://127.0.0.1:1/mcp", "x", "--header", "a: b"], ["NAME=VALUE", "authorization="]),
    (2, ["call", TRAVEL], []),
    (2, [*BOOK, "Lisbon"], []),
    (2, [*BOOK, "=Lisbon"], []),
    (2, [*BOOK, "destination=a", "destination=b"], []),
    (2, [*BOOK, "--args", "[1]"], []),
    (2, [*BOOK, "--args", "{"], []),
    (2, [*BOOK, "--answer", "flight"], []),
    (2, [*BOOK, "--mode", "2020-01-01"], []),
    (2, [*BOOK, "--timeout", "soon"], []),
    (2, ["call", "python 'a", "tool"], []),
    (2, ["serve", TRAVEL, "--port", "70000"], []),
    (2, ["serve", TRAVEL, FORMS], ["/travel=", TRAVEL]),
    (2, ["serve", f"/a={TRAVEL}", f"/a={FORMS}"], ["/a is the path of two servers"]),
    (2, ["serve", f"/a={TRAVEL}", f"/a/mcp={FORMS}", "--port", "0"], ["/a/mcp"]),
    (2, ["serve", f"/a={TRAVEL}", f"/b={FORMS}", "--header", "a=b"], ["--header"]),
    (3, ["serve", f"/a={TRAVEL}", "/b=no.py"], ["there is no file no.py"]),
    (2, ["serve", TRAVEL, "--keyfile", "key.pem"], ["--certfile"]),
    (3, ["serve", TRAVEL, "--port", "0", "--certfile", "/no/cert.pem"], ["TLS", "/no/cert.pem"]),
    (3, ["serve", TRAVEL, "--port", "0", "--certfile", TRAVEL, "--keyfile", TRAVEL], ["TLS", TRAVEL]),
    (2, ["serve", TRAVEL, "--path", "mcp"], []),
    (2, ["serve", TRAVEL, "--drain", "-1"], []),
    (2, ["serve", TRAVEL, "--port", "0", "--path", "/sse", "--sse"], ["must differ"]),
    (2, ["dance"], []),
]


@pytest.mark.parametrize(("status", "arguments", "names"), MISTAKES)
def test_a_mistake_is_named_in_one_line(status: int, arguments: list[str], names: list[str]) -> None:
    assert unnamed(refused(status, *arguments), *names) == []


def test_the_network_needs_the_names_of_the_server() -> None:
    assert "--allowed-host" in refused(2, "serve", TRAVEL, "--host", "0.0.0.0", "--port", "0")


def test_a_file_that_fails_is_reported_once(tmp_path: Path) -> None:
    file = server_file(tmp_path, "\n1 / 0\n")
    (line,) = trio_mcp("call", file, "tool").stderr.splitlines()
    assert unnamed(line, file, "ZeroDivisionError") == []


def test_a_lifespan_for_asyncio_is_reported_with_the_page_to_read(tmp_path: Path) -> None:
    file = server_file(
        tmp_path,
        "import asyncio\nfrom contextlib import asynccontextmanager\n@asynccontextmanager\n"
        "async def lifespan(server):\n    await asyncio.sleep(1)\n    yield\n"
        "server = Server('one', lifespan=lifespan)\n",
    )
    for command in (["run", file], ["serve", file, "--port", "0"]):
        assert unnamed(refused(3, *command), "line 6", "lifespan", "docs/asyncio.md") == []
        assert len(trio_mcp(*command).stderr.splitlines()) == 1


def test_answers_that_no_question_used_are_named(tmp_path: Path) -> None:
    done = trio_mcp("call", TRAVEL, "search_flights", "destination=Oslo", "--answer", "seat=aisle", "--sample", "hop")
    assert done.returncode == 0
    (warning,) = done.stderr.splitlines()
    assert unnamed(warning, "warning", "--answer seat=aisle", "--sample 'hop'") == []


def test_a_call_of_a_file_says_nothing_about_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ENVIRONMENT, "TRIO_MCP_KEYS", raising=False)
    done = trio_mcp("call", TRAVEL, "book_flight", "destination=Lisbon", *ANSWERS)
    assert "TRIO_MCP_KEYS" not in done.stderr


def test_a_call_of_a_file_with_a_store_needs_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ENVIRONMENT, "TRIO_MCP_KEYS", raising=False)
    store = tmp_path / "state.db"
    file = server_file(
        tmp_path,
        f"from trio_mcp import ServiceOptions\nserver = Server('one', options=ServiceOptions(store={str(store)!r}))\n",
    )
    for target in (file, running(file)):
        done = trio_mcp("call", target, "--list")
        assert (done.returncode, done.stdout) == (3, "")
        # Once: a command that has not read the probe is not started again.
        assert done.stderr.count("set TRIO_MCP_KEYS") == 1
    for command in ("run", "serve"):
        done = trio_mcp(command, file)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
    assert not store.exists()


def test_a_traceback_shows_only_when_it_is_asked_for(tmp_path: Path) -> None:
    done = trio_mcp("run", "--debug", server_file(tmp_path, "1 / 0\n"))
    assert done.returncode == 3
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("ZeroDivisionError: division by zero")


# help


def test_the_version_is_printed() -> None:
    assert trio_mcp("--version").stdout.startswith("trio-mcp 0.")


@pytest.mark.parametrize("command", [["serve", TRAVEL, "--port", "0"], ["run", TRAVEL]], ids=["serve", "run"])
def test_invalid_keys_are_reported_before_anything_is_served(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "TRIO_MCP_KEYS", "hidden")
    said = refused(3, *command)
    assert "TRIO_MCP_KEYS is neither a file nor a list of keys: Key 1 is not base64url." in said
    assert 'python -c "import base64, secrets; ' in said
    assert "hidden" not in said
