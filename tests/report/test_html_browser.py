"""The page of a verification, looked at in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from report.browser import Browser
from report.html_samples import outcome, report

from torchlint.harness.judging.doubt import Doubt
from torchlint.harness.judging.verdict import Verdict
from torchlint.harness.trace import SyncSite
from torchlint.report.html import verification_html

ATTACK = (
    """</pre></style></title>'"><script>window.pwned = 1</script>"""
    """<img src=x onerror="window.pwned = 1">"""
)
HOSTILE = f"{ATTACK} {{{{ 7 * 7 }}}} $\\frac{{ \u202e \x1b[31m \udcff {'long' * 100}"
SCRIPT = f"import torch\n# {ATTACK} {'long ' * 100}\nslow = True\n"
COLORS = {
    "light": ("#0072b2", "#c2410c", "#d98200", "#4aa3df", "#5b3fa8", "#00875f"),
    "dark": ("#5ab4f0", "#ff9d5c", "#f0a830", "#6cc0f5", "#b39ddb", "#45c79a"),
}
"""Original and fixed, then the phases of a step."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with closing(Browser(tmp_path_factory.mktemp("profile"))) as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    """A page with every verdict, whose words all come from somebody with bad intentions."""
    script = folder / "<img src=x onerror=alert(1)>.py"
    script.write_text(SCRIPT, encoding="utf-8")
    texts = {str(script): SCRIPT.replace("True", "False")}
    rules = [
        replace(
            outcome("rule", (f"TL{number}01",), verdict, texts),
            sync_sites=(SyncSite(HOSTILE, 3, HOSTILE, 20),),
            warnings=(HOSTILE,),
            doubts=(Doubt("hostile", HOSTILE),),
        )
        for number, verdict in enumerate(Verdict, 1)
    ]
    codes = tuple(f"TL{number}01" for number in range(1, 6))
    made = replace(
        report(
            Path(HOSTILE),
            (
                *rules,
                outcome("all", codes, Verdict.DIFFERENT, texts),
                outcome("kept", codes[:1], Verdict.FASTER, texts),
            ),
        ),
        args=(HOSTILE,),
        doubts=(Doubt("hostile", HOSTILE),),
        diverted=(HOSTILE,),
    )
    file = folder / "page.html"
    file.write_text(verification_html(made), encoding="utf-8")
    return file


@pytest.fixture(autouse=True)
def opened(browser: Browser, page: Path) -> tuple[list[str], list[str]]:
    return browser.open(page)


def test_nothing_is_asked_for_and_nothing_complains(
    opened: tuple[list[str], list[str]], page: Path
) -> None:
    console, asked = opened
    assert console == []
    assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]


@pytest.mark.parametrize(
    "outside",
    [
        "<img src='https://example.invalid/picture.png'>",
        "<link rel=stylesheet href='https://example.invalid/style.css'>",
        "<iframe srcdoc=\"<img src='https://example.invalid/picture.png'>\"></iframe>",
    ],
)
def test_a_page_that_asks_for_something_is_found_out(
    browser: Browser, folder: Path, outside: str
) -> None:
    file = folder / "outside.html"
    file.write_text(f"<!doctype html><title>outside</title>{outside}", encoding="utf-8")
    _, asked = browser.open(file)
    assert any(url.startswith("https://example.invalid/") for url in asked)


def test_what_is_hostile_is_text_and_nothing_else(browser: Browser) -> None:
    assert browser.ask("return window.pwned === undefined")
    assert (
        browser.ask("return document.querySelectorAll('script, img, iframe, object').length") == 0
    )
    assert browser.ask("return document.title").startswith("torchlint verify: </pre></style>")
    seen = browser.ask("return document.querySelector('h1').textContent")
    assert ATTACK in seen
    assert "{{ 7 * 7 }}" in seen
    assert "\\u202e \\x1b[31m \\udcff" in seen
    diff = browser.ask("return document.querySelector('details[open] pre').innerText")
    assert ATTACK in diff
    assert "-slow = True" in diff


def test_the_table_has_a_row_for_each_fix_and_for_all_and_kept(browser: Browser) -> None:
    rows = browser.ask(
        "return [...document.querySelectorAll('.verdicts tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.innerText))"
    )
    assert [row[0].split("\n")[0] for row in rows] == [
        *("TL101", "TL201", "TL301", "TL401", "TL501"),
        *("all fixes together", "kept fixes together"),
    ]
    assert [row[1].split("\n")[0] for row in rows] == [
        *("FASTER", "SAME", "SLOWER", "DIFFERENT", "UNSURE", "DIFFERENT", "FASTER")
    ]
    assert rows[0][2:] == [
        "equal bit for bit (60 losses, 8 parameters)",
        "2 → 0",
        "1.80x (1.70x to 1.90x): 18 ms → 10 ms a step",
        "50% → 10% of the time",
        "256 → 512 MiB",
    ]
    heads = browser.ask(
        "return [...document.querySelectorAll('.verdicts th')].map(head => head.innerText)"
    )
    assert heads == [
        *("fix", "verdict", "numbers", "syncs per step", "speed", "waiting for data", "host memory")
    ]


def test_what_was_kept_is_open_and_a_link_opens_the_others(browser: Browser) -> None:
    opened = "return [...document.querySelectorAll('details')].map(each => each.open)"
    assert browser.ask(opened) == [False] * 6 + [True]
    browser.ask("document.querySelector('.verdicts tbody a').click()")
    assert browser.ask(opened) == [True, *[False] * 5, True]


def test_the_charts_have_their_axes_units_and_legends(browser: Browser) -> None:
    charts = browser.ask(
        "return [...document.querySelectorAll('details[open] figure')]"
        ".map(figure => figure.innerText.split('\\n')[0] + ' ' + "
        "[...figure.querySelectorAll('svg text')].map(text => text.textContent).join(' '))"
    )
    assert [chart.split(" (")[0].split("  ")[0][:8] for chart in charts] == [
        *("Step tim", "Losses 0", "One step")
    ]
    times, losses, step = charts
    assert all(word in times for word in ("time of a step (ms)", "share of the steps (%)"))
    assert all(word in times for word in ("original: 18 ms", "fixed: "))
    assert all(word in losses for word in ("step", "loss", "original", "fixed"))
    assert all(word in step for word in ("time since the step began (ms)", "original", "fixed"))
    parts = browser.ask("return document.querySelector('details[open] .parts').innerText")
    assert [line.split("\t")[0] for line in parts.splitlines()] == [
        *("on average", "data", "forward", "backward", "optimizer", "rest")
    ]
    assert "9 ms (50%)" in parts


@pytest.mark.parametrize("width", [1400, 800, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_can_be_read(browser: Browser, folder: Path, width: int, scheme: str) -> None:
    browser.look(width, scheme)
    assert browser.ask("return document.documentElement.scrollWidth") <= width
    assert _contrast(browser, "document.body", "document.body", "color") >= 7
    assert _contrast(browser, "document.querySelector('.dim')", "document.body", "color") >= 4.5
    for tone in ("good", "bad", "open", "same"):
        badge = f"document.querySelector('.verdict.{tone}')"
        assert _contrast(browser, badge, badge, "color") >= 4.5
    label = "document.querySelector('details[open] svg text')"
    card = "document.querySelector('details[open]')"
    assert _contrast(browser, label, card, "fill") >= 7
    height = browser.ask(
        "return Math.min(...[...document.querySelectorAll('details[open] svg text')]"
        ".map(text => text.getBoundingClientRect()).map(box => Math.min(box.width, box.height))"
        ".filter(size => size > 0))"
    )
    assert height >= 6
    with Image.open(browser.picture(folder / f"{width}-{scheme}.png")) as image:
        colors = image.convert("RGB").getcolors(1 << 24) or []
    drawn = {"#{:02x}{:02x}{:02x}".format(*color) for _, color in colors}
    assert drawn.issuperset(COLORS[scheme])


def _contrast(browser: Browser, front: str, back: str, what: str) -> float:
    """Return how far apart two colours are, as the guidelines for readable pages count it."""
    pair = browser.ask(
        f"return [getComputedStyle({front}).{what}, getComputedStyle({back}).backgroundColor]"
    )
    lights = sorted(_luminance(color) for color in pair)
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(color: str) -> float:
    assert color.startswith("rgb("), color
    channels = [int(part) / 255 for part in color[4:-1].split(",")]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
