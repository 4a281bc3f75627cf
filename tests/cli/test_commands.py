"""The program: its help, what it says about mistakes, and what it loads."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from naming import unnamed

from trio_mcp.cli.command import Command, Status
from trio_mcp.cli.program import MODULES, main, program

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", MODULES)
def test_every_help_has_examples_and_the_exit_statuses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == Status.OK
    said = capsys.readouterr().out
    assert unnamed(said.partition("examples:")[2], f"trio-mcp {name}", "exit status:") == []


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_sentences_of_a_help_are_wrapped_to_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    # A command is not wrapped: it can be copied.
    is_command = re.compile(r"  +\S+ \S")
    for name in MODULES:
        main([name, "--help"])
        lines = capsys.readouterr().out.partition("examples:")[2].splitlines()
        assert [line for line in lines if len(line) > min(columns, 110) and not is_command.match(line)] == [], name


def test_a_help_explains_ctrl_c_once(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("serve", "dev"):
        main([name, "--help"])
        said = capsys.readouterr().out.partition("exit status:")[2].splitlines()
        (ends, interrupted) = [" ".join(line.split()) for line in said if "Ctrl-C" in line]
        assert (ends[:2], "before" in interrupted) == ("0 ", True)


def test_the_examples_of_a_help_need_no_checkout(capsys: pytest.CaptureFixture[str]) -> None:
    for name in MODULES:
        main([name, "--help"])
    assert "examples/" not in capsys.readouterr().out


def examples() -> list[list[str]]:
    """The words of every example in a help, without what belongs to the shell."""
    found = []
    for name in MODULES:
        command = program.get_command(click.Context(program), name)
        assert isinstance(command, Command)
        for line in command.examples.replace("\\\n", " ").splitlines():
            if text := re.search(
                r"trio-mcp ([^$()>#]+)", line if line.startswith("  ") and "{" not in line[:3] else ""
            ):
                found.append(shlex.split(text[1]))
    return found


def test_an_example_of_a_help_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    for name, *rest in examples():
        command = program.get_command(click.Context(program), name)
        assert command is not None, name
        command.make_context(name, rest)


def test_every_command_has_an_example() -> None:
    assert {words[0] for words in examples()} == {*MODULES}


def test_a_help_explains_no_status_that_its_command_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "--help"])
    assert "tool" not in capsys.readouterr().out.partition("exit status:")[2]
    main(["call", "--help"])
    assert "tool" in capsys.readouterr().out.partition("exit status:")[2]


def test_the_help_of_the_program_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == Status.OK
    said = capsys.readouterr().out
    assert [name for name in MODULES if f"\n  {name} " not in said] == []


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["serv", "app.py"], ["'serv'", "'serve'"]),
        (["inspct"], ["'inspect'"]),
        (["serve", "app.py", "--prot", "80"], ["'--prot'", "'--port'", "trio-mcp serve --help"]),
        (["call", "app.py", "tool", "--answr", "a=b"], ["'--answr'", "'--answer'"]),
        (["call", "app.py", "tool", "--tool"], ["'--tool'", "follows the target"]),
        (["serve", "app.py", "--reload"], ["'--reload'", "trio-mcp dev"]),
        (["serve", "app.py", "--transport", "http"], ["'--transport'", "trio-mcp run", "trio-mcp serve"]),
        (["run", "app.py", "--workers", "2"], ["'--workers'", "trio-mcp serve", "HTTP"]),
        (["dev", "app.py", "--workers", "2"], ["--workers", "trio-mcp serve"]),
        *(
            (["serve", "app.py", "--workers", each], ["--workers", f"'{each}'", "1 to 64"])
            for each in ("0", "65", "-1", "x")
        ),
        (["serve", "http://127.0.0.1:9/mcp", "--workers", "2"], ["one server"]),
        (["serve", "/a=a.py", "/b=b.py", "--workers", "2"], ["one server"]),
        (["serve", "app.py", "--sse", "--workers", "2"], ["--sse"]),
        (["run", "app.py", "--port", "8000"], ["'--port'", "trio-mcp serve"]),
        (["run", "app.py", "--transport", "http"], ["'--transport'", "trio-mcp serve"]),
        (["install", "curser", "app.py"], ["'curser'", "cursor"]),
        (["serve"], ["TARGET"]),
        (["serve", "app.py", "--port", "x"], ["--port", "'x'", "whole number", "65535"]),
        (["serve", "app.py", "--port", "65536"], ["--port", "'65536'"]),
        (["backfill", "--max-sessions", "0", "x"], ["--max-sessions", "'0'", "at least 1"]),
        (["call", "app.py", "tool", "--timeout", "nan"], ["--timeout", "'nan'"]),
        (["call", "app.py", "tool", "--mode", "modrn"], ["--mode", "modern"]),
    ],
)
def test_a_mistake_is_one_line_that_names_what_was_meant(
    words: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == Status.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert unnamed(line, "trio-mcp", *names) == []


@pytest.mark.parametrize("words", [["bundle", "app.py", "--yes"], ["list", "app.py", "--tool"], ["zzz"]])
def test_what_is_like_nothing_gets_no_suggestion(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == Status.USAGE
    assert "mean" not in capsys.readouterr().err


def test_every_command_has_json_that_does_not_serve_or_write_for_people_or_shells_alone() -> None:
    commands = {name: program.get_command(click.Context(program), name) for name in MODULES}
    without = {
        name
        for name, each in commands.items()
        if each is not None and "--json" not in str([o.opts for o in each.params])
    }
    assert without == {"run", "serve", "dev", "backfill", "demo", "completion"}


def test_no_command_at_all_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == Status.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert [name for name in MODULES if f"\n  {name} " not in said.err] == []


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["list", "none.py", "--json"], Status.UNREACHABLE),
        (["call", "none.py", "tool", "--json"], Status.UNREACHABLE),
        (["call", "--json"], Status.USAGE),
        (["list", "none.py", "--json", "--only", "x"], Status.USAGE),
        (["inspect", "none.py:\x1b", "--json"], Status.UNREACHABLE),
    ],
)
def test_with_json_an_error_is_an_object_in_one_line_of_stderr(
    words: list[str], kind: Status, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == kind
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    error = json.loads(line)["error"]
    assert (error["kind"], error["status"]) == (kind.name.lower(), kind)
    assert error["message"].isprintable()


def test_a_word_with_control_characters_is_shown_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["\x1b[2J"]) == Status.USAGE
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    assert main(["completion"]) == Status.OK
    assert f"_TRIO_MCP_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_completion_needs_the_name_of_a_shell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert main(["completion"]) == Status.USAGE
    assert "bash, zsh or fish" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "completed"), [("in", {"inspect", "install"}), ("serve --al", {"--allowed-host", "--allowed-origin"})]
)
def test_a_shell_completes_commands_and_options(
    words: str, completed: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_TRIO_MCP_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"trio-mcp {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    with pytest.raises(SystemExit):
        main([])
    assert {line.partition(",")[2] for line in capsys.readouterr().out.splitlines()} == completed


def test_run_loads_neither_rich_nor_a_client_nor_what_only_other_commands_need(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text("from trio_mcp import Server\nserver = Server('app')\n")
    script = (
        "import sys\nfrom trio_mcp.cli.program import main\n"
        f"main(['run', {str(file)!r}])\nprint(*sys.modules, file=sys.stderr)\n"
    )
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'transports'}", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    loaded = set(done.stderr.split())
    assert "trio_mcp.server" in loaded, done.stderr
    others = {
        "trio_mcp.cli.hosts",
        "trio_mcp.cli.connecting",
        "trio_mcp.cli.terminal.messages",
        "click.shell_completion",
    }
    unwanted = {"rich", "trio_mcp.client", "trio_mcp.types.sampling", "argparse", "asyncio"} | others
    assert loaded.isdisjoint(unwanted)


def test_a_header_of_the_environment_may_have_spaces_and_is_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIO_MCP_LIST_HEADER", "authorization=Bearer canary\nx-b=1")
    assert main(["list", "http://127.0.0.1:1/mcp"]) == Status.UNREACHABLE
    monkeypatch.setenv("TRIO_MCP_LIST_HEADER", "canary")
    assert main(["list", "http://127.0.0.1:1/mcp"]) == Status.USAGE
    err = capsys.readouterr().err
    assert "--header" in err
    assert "canary" not in err


def test_an_option_may_be_in_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIO_MCP_SERVE_PORT", "x")
    assert main(["serve", "app.py"]) == Status.USAGE
    assert unnamed(capsys.readouterr().err, "--port", "'x'") == []
    assert main(["serve", "none.py", "--port", "0"]) == Status.UNREACHABLE


@pytest.mark.parametrize("name", MODULES)
def test_the_variable_of_an_option_has_the_name_of_the_option(name: str) -> None:
    command = program.get_command(click.Context(program), name)
    assert command is not None
    options = [each for each in command.params if isinstance(each, click.Option)]
    named = {option.opts[0].lstrip("-").replace("-", "_").upper(): option.envvar for option in options}
    assert named == {long: f"TRIO_MCP_{name.upper()}_{long}" for long in named}


def test_a_flag_whose_parameter_has_another_name_is_taken_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIO_MCP_LIST_JSON", "1")
    assert main(["list", "none.py"]) == Status.UNREACHABLE
    assert json.loads(capsys.readouterr().err)["error"]["status"] == Status.UNREACHABLE


def test_a_repeatable_option_of_the_environment_has_spaces_between_its_values(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIO_MCP_LIST_ONLY", "tools nonsense")
    assert main(["list", "none.py"]) == Status.USAGE
    assert "'nonsense'" in capsys.readouterr().err
