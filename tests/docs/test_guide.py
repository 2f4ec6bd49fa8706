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


def test_measured_times_may_differ_and_computed_numbers_may_not() -> None:
    page = """<!-- measured -->
```console
$ torchlint verify x.py
  speed             1.93x (1.54x to 2.73x)
  numbers           equal bit for bit (19 losses, 4 parameters)
```
"""
    slower = page.replace("1.93x (1.54x to 2.73x)", "1.01x (0.93x to 1.13x)")
    assert without_measurements(page) == without_measurements(slower)
    other = page.replace("equal bit for bit", "different")
    assert without_measurements(page) != without_measurements(other)
