"""`trio-mcp` as a person meets it: what it serves, what it calls, what it asks, and what it says to mistakes."""

from __future__ import annotations

import json
import signal
import socket
from itertools import product
from pathlib import Path

import pytest
from command import ENVIRONMENT, FORMS, ROOT, TRAVEL, Person, refused, started, trio_mcp

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


def test_a_command_is_a_target_too() -> None:
    done = trio_mcp("call", f"{json.dumps(TRAVEL)[1:-1]}", "search_flights", "destination=Oslo")
    assert json.loads(done.stdout)["result"][1] == {"number": "DY4", "departs": "16:20", "euros": 75}


def test_tools_are_listed_with_their_arguments() -> None:
    done = trio_mcp("call", FORMS, "--list")
    assert done.returncode == 0
    assert "take text=string number=number [flag=boolean] [anything=any]\n    Show the arguments.\n" in done.stdout


def test_values_are_text_where_the_tool_wants_text_and_json_elsewhere() -> None:
    done = trio_mcp("call", FORMS, "take", "text=5", "number=5", "flag=true", 'anything={"a": [1]}')
    assert json.loads(done.stdout) == ["5", 5.0, True, {"a": [1]}]


def test_a_json_object_gives_all_arguments_and_a_pair_changes_one() -> None:
    done = trio_mcp("call", FORMS, "take", "--json", '{"text": "a", "number": 1, "anything": null}', "number=2.5")
    assert json.loads(done.stdout) == ["a", 2.5, False, None]


def test_without_a_terminal_a_question_is_declined_with_a_note() -> None:
    done = trio_mcp("call", TRAVEL, "book_flight", "destination=Lisbon")
    assert (done.returncode, done.stdout) == (0, "Nothing was booked.\n")
    assert "declined" in done.stderr
    assert "--answer for flight, seat" in done.stderr


def test_the_roots_are_those_named() -> None:
    done = trio_mcp("call", TRAVEL, "list_folders", "--root", str(ROOT))
    assert json.loads(done.stdout) == {"result": [ROOT.as_uri()]}


def test_an_error_result_goes_to_stderr_with_status_1() -> None:
    done = trio_mcp("call", FORMS, "fail")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the tool answered with an error: the tank is empty" in done.stderr


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


def test_a_person_books_a_flight() -> None:
    with Person("call", TRAVEL, "book_flight", "destination=Lisbon") as person:
        person.sees("travel asks: 3 flights to Lisbon. Which one?")
        person.sees("flight (TP1, TP3, TP5): ")
        person.enters("tp3")
        person.sees("seat (window, aisle) [window]: ")
        person.enters("")
        person.sees("user: In one line: a flight that leaves at 12:15.")
        person.sees("your answer as the model: ")
        person.enters("A lunch with a view.")
        person.sees("A lunch with a view. It will be sunny in Lisbon. Book TP3 (window) for 89 euros?")
        person.sees("value (y or n): ")
        person.enters("y")
        person.sees("Booked TP3 to Lisbon")
        assert person.waits() == 0


def test_an_answer_that_does_not_fit_is_asked_for_again() -> None:
    with Person("call", FORMS, "register") as person:
        person.sees("As in the passport")
        for prompt, wrong, complaint, right in [
            ("name (text, at least 2 characters): ", "A", "please enter text, at least 2 characters", "Ada"),
            ("age (a whole number 18 to 99): ", "17", "please enter a whole number 18 to 99", "36"),
            ("email (an e-mail address): ", "ada", "please enter an e-mail address", "ada@example.com"),
            ("meal (fish, beans) [beans]: ", "soup", "please choose one of: fish, beans", "FISH"),
            ("several by commas): ", "bag, bag", "please choose each one once only", "bag, wifi"),
            ("window (y or n) [y]: ", "maybe", "please answer y or n", "no"),
        ]:
            person.sees(prompt)
            person.enters(wrong)
            person.sees(complaint)
            person.sees(prompt)
            person.enters(right)
        person.sees("note (text) [leave out]: ")
        person.enters("")
        person.sees('{"name":"Ada","age":36,"email":"ada@example.com","meal":"fish","extras":["bag","wifi"],')
        person.sees('"window":false,"note":null}')
        assert person.waits() == 0


@pytest.mark.parametrize(
    ("keys", "action"),
    [("!decline\n", "decline"), ("!cancel\n", "cancel"), ("\x04", "cancel"), ("Ada\n!decline\n", "decline")],
)
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_person_may_decline_or_close_a_question(keys: str, action: str, mode: str) -> None:
    with Person("call", "--mode", mode, FORMS, "register") as person:
        person.sees("name (text, at least 2 characters): ")
        person.presses(keys)
        person.sees(f"it was {action}")
        assert person.waits() == 0


def test_a_person_is_asked_only_what_the_command_line_leaves_open() -> None:
    with Person("call", TRAVEL, "book_flight", "destination=Oslo", *ANSWERS[2:], "--answer", "flight=SK8") as person:
        person.sees("flight: SK8")
        person.sees("Booked SK8 to Oslo at 09:30, aisle seat")
        assert person.waits() == 0


def test_ctrl_c_at_a_question_ends_the_command_with_130() -> None:
    with Person("call", FORMS, "register") as person:
        person.sees("name (text, at least 2 characters): ")
        person.presses("\x03")
        assert person.waits() == 130
        assert "Traceback" not in person.screen


def test_ctrl_d_refuses_to_answer_as_the_model() -> None:
    with Person("call", "--mode", "2026-07-28", FORMS, "ask_model") as person:
        person.sees("system: Be brief.")
        person.sees("your answer as the model: ")
        person.presses("\x04")
        person.sees("The user rejected the sampling request")
        assert person.waits() == 4


# serving


def test_run_serves_the_only_server_of_a_file(tmp_path: Path) -> None:
    file = server_file(tmp_path, 'print("loading")\nshop = Server("shop")\nsame = shop\n')
    done = trio_mcp("call", f"{' '.join(map(json.dumps, python_m('run', file)))}", "--list")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "loading\n")


def test_run_serves_the_server_that_is_named(tmp_path: Path) -> None:
    file = server_file(
        tmp_path, 'one = Server("one")\ntwo = Server("two")\n\n@two.tool\ndef hello() -> str:\n    return "hi"\n'
    )
    done = trio_mcp("call", f"{' '.join(map(json.dumps, python_m('run', f'{file}:two')))}", "hello")
    assert (done.returncode, done.stdout) == (0, "hi\n")


def test_serve_serves_over_http_and_websocket_until_it_is_told_to_stop() -> None:
    with started("serve", TRAVEL, "--port", "0", "--path", "/travel", "--drain", "1") as process:
        url = announced(process)
        assert url.endswith("/travel")
        for target, mode in product((url, url.replace("http:", "ws:")), ("legacy", "auto")):
            done = trio_mcp("call", target, "book_flight", "destination=Lisbon", "--mode", mode, *ANSWERS)
            assert (done.returncode, done.stdout) == (0, BOOKED), done.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_serve_serves_old_clients_too_when_asked_to() -> None:
    with started("serve", TRAVEL, "--port", "0", "--sse", "--drain", "1") as process:
        url = announced(process)
        assert url.endswith("/sse")
        done = trio_mcp("call", url, "book_flight", "destination=Lisbon", *ANSWERS)
        assert (done.returncode, done.stdout) == (0, BOOKED), done.stderr


# mistakes


def test_a_file_that_is_not_there_is_named() -> None:
    for arguments in (["run", "no.py"], ["serve", "no.py:server"], ["call", "no.py", "tool"]):
        assert refused(3, *arguments) == "trio-mcp: there is no file no.py"


def test_a_url_that_no_transport_reaches_is_no_command() -> None:
    said = refused(2, "call", "htp://127.0.0.1:8000/mcp", "tool")
    assert "'htp://127.0.0.1:8000/mcp'" in said
    assert "http, https, ws, wss" in said


def test_a_url_in_capitals_is_one_too() -> None:
    assert "Connection refused" in refused(3, "call", "WS://127.0.0.1:9/mcp", "tool")


def test_a_file_without_a_server_is_named(tmp_path: Path) -> None:
    file = server_file(tmp_path, "x = 1\n")
    assert refused(3, "run", file) == f"trio-mcp: {file} has no Server in it"


def test_several_servers_are_listed_to_choose_from(tmp_path: Path) -> None:
    file = server_file(tmp_path, 'one = Server("one")\ntwo = Server("two")\n')
    assert refused(3, "run", file).endswith(f"has several servers; choose one of: {file}:one, {file}:two")
    assert "has no server called 'three'" in refused(3, "serve", f"{file}:three")


@pytest.mark.parametrize(
    ("text", "said"), [("\n1 / 0\n", "line 3: ZeroDivisionError: division by zero"), ("(", "SyntaxError")]
)
def test_a_file_that_breaks_is_named_with_the_line(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(3, "run", server_file(tmp_path, text))


def test_a_traceback_shows_only_when_it_is_asked_for(tmp_path: Path) -> None:
    done = trio_mcp("run", "--debug", server_file(tmp_path, "1 / 0\n"))
    assert done.returncode == 3
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("ZeroDivisionError: division by zero")


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refused(3, "serve", TRAVEL, "--port", str(port)).endswith(f"port {port}: the port is taken")


def test_two_things_cannot_be_served_on_one_path() -> None:
    assert "must differ" in refused(2, "serve", TRAVEL, "--port", "0", "--path", "/sse", "--sse")


def test_the_network_needs_the_names_of_the_server() -> None:
    assert "--allowed-host" in refused(2, "serve", TRAVEL, "--host", "0.0.0.0", "--port", "0")


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_an_unreachable_url_is_named(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"{scheme}://127.0.0.1:{free.getsockname()[1]}/mcp"
    assert url in refused(3, "call", url, "tool")


def test_a_command_that_cannot_be_started_is_named() -> None:
    assert "no-such-command" in refused(3, "call", "no-such-command --now", "tool")


def test_a_server_that_ends_at_once_is_told() -> None:
    assert "closed the connection" in refused(3, "call", "true", "tool")


def test_an_unknown_tool_is_answered_with_those_there_are() -> None:
    said = refused(2, "call", TRAVEL, "book")
    assert said.endswith("has no tool 'book'; its tools are: search_flights, book_flight, list_folders")


def test_a_wrong_argument_is_told_by_the_tool() -> None:
    done = trio_mcp("call", FORMS, "take", "text=a", "number=many")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Invalid arguments for take: number:" in done.stderr


def test_an_answer_from_the_command_line_that_does_not_fit_is_told() -> None:
    said = refused(2, "call", TRAVEL, "book_flight", "destination=Lisbon", "--answer", "flight=XX")
    assert said == "trio-mcp: --answer flight=XX: please choose one of: TP1, TP3, TP5"


def test_a_capability_that_is_missing_is_told_with_the_option_that_gives_it() -> None:
    assert refused(4, "call", TRAVEL, "list_folders").endswith("give --root FOLDER")
    assert refused(4, "call", FORMS, "ask_model", "--mode", "legacy").endswith("give --sample TEXT")


def test_a_call_over_its_time_is_cancelled() -> None:
    assert "timed out after 2 seconds" in refused(4, "call", FORMS, "hang", "--timeout", "2")


@pytest.mark.parametrize(
    "arguments",
    [
        ["call", TRAVEL],
        ["call", TRAVEL, "book_flight", "Lisbon"],
        ["call", TRAVEL, "book_flight", "=Lisbon"],
        ["call", TRAVEL, "book_flight", "destination=a", "destination=b"],
        ["call", TRAVEL, "book_flight", "--json", "[1]"],
        ["call", TRAVEL, "book_flight", "--json", "{"],
        ["call", TRAVEL, "book_flight", "--answer", "flight"],
        ["call", TRAVEL, "book_flight", "--mode", "2020-01-01"],
        ["call", TRAVEL, "book_flight", "--timeout", "soon"],
        ["call", "python 'a", "tool"],
        ["serve", TRAVEL, "--port", "70000"],
        ["serve", TRAVEL, "--path", "mcp"],
        ["serve", TRAVEL, "--drain", "-1"],
        ["dance"],
    ],
)
def test_a_wrong_command_line_has_status_2(arguments: list[str]) -> None:
    refused(2, *arguments)


@pytest.mark.parametrize("command", [[], ["run"], ["serve"], ["call"], ["demo"]])
def test_help_has_examples_and_the_exit_statuses(command: list[str]) -> None:
    done = trio_mcp(*command, "--help")
    assert done.returncode == 0
    assert "exit status:" in done.stdout
    assert not command or command == ["demo"] or "examples:\n  trio-mcp" in done.stdout


def test_the_version_is_told() -> None:
    assert trio_mcp("--version").stdout.startswith("trio-mcp 0.")


@pytest.mark.parametrize("command", [["serve", TRAVEL, "--port", "0"], ["run", TRAVEL]], ids=["serve", "run"])
def test_keys_that_are_none_are_told_before_anything_is_served(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "TRIO_MCP_KEYS", "secret")
    said = refused(3, *command)
    assert "TRIO_MCP_KEYS is neither a file nor a list of keys: Key 1 is not base64url." in said
    assert "secret" not in said


# one step each


def server_file(folder: Path, text: str) -> str:
    file = folder / "shop.py"
    file.write_text(f"from trio_mcp import Server\n{text}")
    return str(file)


def python_m(*arguments: str) -> list[str]:
    from command import COMMAND

    return [*COMMAND, *arguments]


def announced(process) -> str:
    line = process.stderr.readline()
    assert "serves MCP at" in line
    return line.split()[-1]


def test_a_number_that_json_cannot_hold_is_refused_before_it_is_sent() -> None:
    assert "number is inf" in refused(2, "call", FORMS, "take", "text=a", "number=1e999")


def test_a_header_is_written_with_an_equals_sign() -> None:
    assert "is not NAME=VALUE, such as authorization=" in refused(
        2, "call", "http://127.0.0.1:1/mcp", "x", "--header", "authorization: Bearer x"
    )
