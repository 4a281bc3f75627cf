"""The progress of a call: a bar on a terminal, which is away during a question, and lines elsewhere."""

from __future__ import annotations

import pytest

from trio_mcp.cli.terminal import messages
from trio_mcp.cli.terminal.messages import ProgressDisplay, show_progress
from trio_mcp.types import JsonObject, ProgressNotificationParams


class Screen:
    """Keeps what happens to the bar."""

    def __init__(self) -> None:
        self.happened: list[str] = []

    def bar(self) -> Screen:
        return self

    def start(self) -> None:
        self.happened.append("start")

    def stop(self) -> None:
        self.happened.append("stop")

    def update(self, done: float, total: float | None, text: str) -> None:
        self.happened.append(f"{done:g}/{total:g} {text}")


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    screen = Screen()
    monkeypatch.setattr(messages, "is_terminal", lambda: True)
    monkeypatch.setattr(messages, "rich_screen", lambda: screen)
    return screen


def report(done: float, text: str, meta: JsonObject | None = None) -> ProgressNotificationParams:
    return ProgressNotificationParams(progress_token=1, progress=done, total=3, message=text, meta=meta)


def test_a_bar_is_there_from_the_first_report_to_the_end_but_not_during_a_question(screen: Screen) -> None:
    display = ProgressDisplay()
    with display.reports() as on_progress:
        assert screen.happened == []
        on_progress(report(1, "one\nline\x1b[2J"))
        with display.hidden():
            assert screen.happened[-1] == "stop"
            on_progress(report(2, "unseen"))
            assert screen.happened[-1] == "stop"
        on_progress(report(3, "last"))
    assert screen.happened == ["start", "1/3 one\\nline\ufffd[2J", "stop", "start", "3/3 last", "stop"]


def test_a_question_before_the_first_report_draws_nothing(screen: Screen) -> None:
    display = ProgressDisplay()
    with display.reports() as on_progress, display.hidden():
        on_progress(report(1, "unseen"))
    assert screen.happened == []


def test_the_bar_is_gone_after_an_error_in_a_question(screen: Screen) -> None:
    display = ProgressDisplay()

    def ask() -> None:
        with display.reports() as on_progress:
            on_progress(report(1, "one"))
            with display.hidden():
                raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        ask()
    assert screen.happened[-1] == "stop"


def test_elsewhere_each_report_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay().reports() as on_progress:
        on_progress(report(1, "one"))
        on_progress(report(2, "two"))
    assert capsys.readouterr().err == "[1/3] one\n[2/3] two\n"


BEAT: JsonObject = {"io.trio-mcp/heartbeat": True}
TINY = 4.94065645841247e-324


def test_the_number_of_a_heartbeat_is_not_shown(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay().reports() as on_progress:
        on_progress(report(TINY, "", BEAT))
        on_progress(report(TINY * 2, "begun"))
    assert screen.happened == ["start", "0/3 ", "0/3 begun", "stop"]
    for each in (report(TINY, "", BEAT), report(TINY * 2, "begun"), report(1, "one"), report(1 + 1e-15, "one", BEAT)):
        show_progress(each)
    assert capsys.readouterr().err == "[0/3] begun\n[1/3] one\n"
