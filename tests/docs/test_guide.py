"""What the guide's pages show is what their commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from guide_pages import PAGES, page_as_run, without_measurements


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_shows(page: Path) -> None:
    written = page.read_text(encoding="utf-8")
    assert without_measurements(page_as_run(written)) == without_measurements(written)


def test_a_page_that_shows_something_else_is_found_out() -> None:
    page = "```console\n$ torchlint --version\ntorchlint 9.9\n$ exit 3\n$ echo $?\n```\n"
    printed = page_as_run(page)
    assert printed != page
    assert re.search(r"^torchlint \d+\.\d+", printed, re.MULTILINE)
    assert "$ echo $?\n3\n" in printed


def test_measured_numbers_and_verdicts_may_differ_and_words_may_not() -> None:
    page = "<!-- measured -->\n```console\n$ torchlint verify x.py\nFASTER 1.52 times\n```\n"
    other = page.replace("FASTER 1.52", "SAME 1.01")
    assert without_measurements(page) == without_measurements(other)
    assert without_measurements(page) != without_measurements(page.replace("times", "slow"))
