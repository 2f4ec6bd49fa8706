from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator

import pytest

from torchlint.cli.terminal import color_wanted, with_progress


class Stream(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def progress_of(patch: pytest.MonkeyPatch, terminal: bool, seconds: float, wanted: bool) -> str:
    """Run over five results that take `seconds` each and give what standard error got."""
    stream = Stream(terminal)
    clock = [0.0]
    patch.setattr(sys, "stderr", stream)
    patch.setattr(time, "monotonic", lambda: clock[0])
    patch.setenv("TERM", "xterm")

    def work() -> Iterator[int]:
        for number in range(5):
            clock[0] += seconds
            yield number

    assert list(with_progress(work(), 5, wanted)) == [0, 1, 2, 3, 4]
    return stream.getvalue()


def test_long_work_shows_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = progress_of(monkeypatch, terminal=True, seconds=0.5, wanted=True)
    assert "torchlint" in shown
    assert "100%" in shown
    assert shown.endswith("\x1b[2K")


@pytest.mark.parametrize(
    ("terminal", "seconds", "wanted"),
    [(False, 0.5, True), (True, 0.01, True), (True, 0.5, False)],
    ids=["pipe", "short work", "quiet"],
)
def test_no_bar_where_none_is_wanted(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, seconds: float, wanted: bool
) -> None:
    assert progress_of(monkeypatch, terminal, seconds, wanted) == ""


@pytest.mark.parametrize(
    ("choice", "environment", "terminal", "expected"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, False, False),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_who_decides_on_colours(
    monkeypatch: pytest.MonkeyPatch,
    choice: str,
    environment: dict[str, str],
    terminal: bool,
    expected: bool,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert color_wanted(choice, Stream(terminal)) is expected
