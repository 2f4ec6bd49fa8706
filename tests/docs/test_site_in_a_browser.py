"""The pages of the site that `make docs` has built, at the widths of three screens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from checkouts import ROOT
from report.browser import Browser

SITE = ROOT / "build" / "site"
PAGES = ("", "articles", "guide/comparison", "guide/configuration", "guide/ruff", "guide/verify")
RULES = ("rules", "rules/TL101", "rules/TL201", "rules/TL701")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not SITE.is_dir():
        pytest.skip("needs the site, which `make docs` builds")
    with closing(Browser(tmp_path_factory.mktemp("profile"))) as browser:
        yield browser


@pytest.mark.parametrize("page", [*PAGES, *RULES])
def test_a_page_fits_and_takes_nothing_from_elsewhere(browser: Browser, page: str) -> None:
    _, asked = browser.open(SITE / page / "index.html")
    assert all(address.startswith(("file:", "data:")) for address in asked)
    for width in (1400, 800, 360):
        for scheme in ("light", "dark"):
            browser.look(width, scheme)
            assert browser.ask("return document.documentElement.scrollWidth") <= width, width
