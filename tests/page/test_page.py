"""Pages of rules: what is read comes back to the byte, and what is wrong has a line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkouts import ROOT
from hypothesis import given
from hypothesis import strategies as st
from pack_pages import page

from torchlint.page.document import Page, Snippet, check_page, parse_page, read_page, write_page
from torchlint.page.header import Header, PageError, read_header, write_header

PAGES = sorted((ROOT / "rules/torchlint_rules").rglob("*.md"))
FINE = page("ABC101", "slow-thing")
WORDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1)


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.stem)
def test_a_page_that_is_read_and_written_is_the_same_bytes(file: Path) -> None:
    assert write_page(read_page(str(file))).encode() == file.read_bytes()
    assert read_header(str(file)) == check_page(str(file))


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.stem)
def test_yaml_reads_the_same_header(file: Path) -> None:
    text = file.read_text(encoding="utf-8").split("---\n")[1]
    header = read_header(str(file))
    found = yaml.load(text, yaml.BaseLoader)
    assert {key: _plain(key, getattr(header, key)) for key in found} == found


def _plain(key: str, value: Any) -> Any:
    """Return a value as YAML has it that takes everything for a text."""
    if key == "since":
        return ".".join(map(str, value))
    if isinstance(value, tuple):
        return [*value]
    if isinstance(value, bool):
        return str(value).lower()
    if key == "options":
        return {
            name: each if isinstance(each, str) else json.dumps(each)
            for name, each in json.loads(value).items()
        }
    return value or "none"


def test_no_example_stands_on_two_pages() -> None:
    seen: dict[str, str] = {}
    for file in PAGES:
        written = read_page(str(file))
        for snippet in (*written.reported, *written.quiet):
            here = f"{file.stem}: {snippet.title}"
            assert snippet.code not in seen, f"{here} is {seen[snippet.code]}"
            seen[snippet.code] = here


@given(st.text(), st.integers(0, 60))
def test_any_text_in_a_page_is_read_or_refused_with_a_line(text: str, at: int) -> None:
    lines = FINE.split("\n")
    lines.insert(at, text)
    hostile = "\n".join(lines)
    try:
        found = parse_page(hostile, "x.md")
    except PageError as error:
        said = str(error)
    else:
        said = "x.md:1: "
        assert parse_page(write_page(found), "x.md") == found
    assert re.fullmatch(r"x\.md:[0-9]+: .*", said)


@given(WORDS.map(str.strip).filter(bool), st.lists(WORDS, min_size=1))
def test_any_words_stand_in_a_header(summary: str, needs: list[str]) -> None:
    header = Header(
        "AB100", "x", summary, "low", None, tuple(needs), options=json.dumps({"x": summary})
    )
    written = [*write_header(header), "", *FINE.split("---\n\n")[1].split("\n")]
    assert parse_page("\n".join(written), "x.md").header == header


@given(
    st.lists(st.sampled_from(["x = 1", "", "```", "````", "  ```python", "## a", "### b", "---"]))
)
def test_any_code_stands_in_an_example(lines: list[str]) -> None:
    snippet = Snippet("a", "\n".join(["x", *lines]), {"select": "TL801"})
    made = Page(*parse_page(FINE, "x.md")[:3], (snippet,))
    assert parse_page(write_page(made), "x.md") == made


def test_an_example_may_have_several_files() -> None:
    snippet = Snippet("a", "! x", {}, "nets/train.py", {"data.py": "y = 1\n```", "b.py": "z"})
    page = parse_page(FINE, "x.md")._replace(reported=(snippet,))
    text = write_page(page)
    assert '````python title="data.py"\ny = 1\n```\n````\n```python title="b.py"' in text
    assert '```diff title="nets/train.py"\n! x' in text
    assert parse_page(text, "x.md") == page


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        (["python", 'diff title="a.py"'], "each file of several has a title of its own, such as"),
        (['python title="a.py"', "diff"], "each file of several has a title of its own, such as"),
        (['python title="a.py"', 'diff title="a.py"'], "each file of several has a title of its"),
        (['diff title="a.py"'], "each file of several has a title of its own, such as"),
        (['python title="a.py"'], "the last file of this example begins with ```diff"),
        (['python title="../a.py"', 'diff title="b.py"'], "the code of this example begins with"),
    ],
)
def test_what_is_wrong_with_the_files_of_an_example_is_told(blocks: list[str], said: str) -> None:
    written = write_page(parse_page(FINE, "x.md"))
    head, _, rest = written.partition("```diff\n")
    _, _, end = rest.partition("```\n")
    text = head + "".join(f"```{each}\n! x\n```\n" for each in blocks) + end
    with pytest.raises(PageError, match=re.escape(said)):
        parse_page(text, "x.md")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("---\ncode", "code", "1: a page begins with a header between two lines of `---`"),
        ("---\n\n## What", "\n## What", "8: a line of the header is `key: value`"),
        ("impact: low", "impact:low", "5: a line of the header is `key: value`"),
        ("impact: low", "impact: huge", "5: `impact` must be high, medium or low, it is huge"),
        ("impact: low", "impact: [low", "5: `impact` must be high, medium or low, it is [low"),
        ("impact: low", "speed: low", "5: unknown key `speed`: known are code, name, summary, "),
        ("impact: low", "code: AB100", "5: `code` stands here twice"),
        ("impact: low\n", "", "7: the header has no `impact`"),
        ("code: ABC101", "code: AB1", "2: `code` must be two to five letters and three digits"),
        ("name: slow", "name: Slow", "3: `name` must be lower-case words with hyphens"),
        ("summary: slow", "summary: `slow`", "4: `summary` must be in quotes: as it stands YAML"),
        ("summary: slow", 'summary: "slow', "4: `summary` must be one text in quotes"),
        ("[torch]", "torch", "7: `needs` must be a list such as [a, b], it is torch"),
        ("[torch]", "[]", "7: `needs` must be a list that is not empty, it is []"),
        ("[torch]", "[a, ]", "7: `needs` must be a list such as [a, b], it is [a, ]"),
        ("[torch]", "[a]\nsince: two", "8: `since` must be a version such as 2.4, it is two"),
        ("[torch]", "[a]\ndefault: no", "8: `default` must be true or false, it is no"),
        ("[torch]", "[a]\noptions: {a: 1}", "8: `options` must be JSON such as {"),
        ("[torch]", "[a]\noptions: 4", "8: `options` must be JSON such as {"),
        ("safety: none", "safety: fine", "6: `safety` must be exact, close, unsafe or none"),
        ("\n## What", "\n# It\n## What", "10: `## What it does` must stand here"),
        ("## Why it is slow", "## Why", "13: `## Why it is slow` must stand here"),
        ("Never.\n", "", "16: nothing stands under `## When not to`"),
        ("Never.", "\tNever.", "17: a tab or another control character"),
        ("Never.", "Never.\r", "17: a line ends with CR: save the file with LF"),
        ("Never.", "```", "25: a fence within that of line 17"),
        ("## Reported", "## Found", "22: `## Reported` must stand here"),
        ("### a", "#### a", "24: an example begins with `### ` and a title"),
        ("### a\n", "### a\nfor: me\n", "25: what may be set here, and once, is target-torch, "),
        ("```diff", "```python", "25: the code of this example begins with ```diff"),
        ("```diff", "Some words.", "25: the code of this example begins with ```diff"),
        ("! x\n", "", "25: this example is empty"),
        ("! x\n", "```python\n", "26: a fence within that of line 25"),
        ("! x\n```\n", "! x\n", "31: a fence within that of line 25"),
        ("y\n```\n", "y\n", "32: nothing ends what ``` begins"),
        ("### b", "### b\n```python\nx\n```\n### b", "35: another example has this title"),
        ("### b\n```python\ny\n```\n", "", "29: no example stands under `## Not reported`"),
        (
            "### b\n```python\ny\n```\n",
            "## More\n",
            "29: no example stands under `## Not reported`",
        ),
        (
            "y\n```\n",
            "y\n```\n\n## Afterthoughts\n",
            "36: no page has the heading `## Afterthoughts`",
        ),
        ("y\n```\n", "y\n```", "34: the last line has no end"),
    ],
)
def test_what_is_wrong_with_a_page_is_said_in_one_line(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in FINE
    file = tmp_path / "x.md"
    file.write_bytes(FINE.replace(old, new, 1).encode())
    with pytest.raises(PageError) as caught:
        read_page(str(file))
    assert str(caught.value).startswith(f"{file}:{said}")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "x.md"
    file.write_bytes(FINE.encode().replace(b"slow", b"\xff", 1))
    for read in (read_header, read_page):
        with pytest.raises(PageError, match=r"x\.md:3: this is no UTF-8"):
            read(str(file))


def test_a_header_is_read_without_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "x.md"
    file.write_bytes(FINE.encode() + b"\xff" * 5000)
    assert read_header(str(file)).code == "ABC101"


def test_a_long_header_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "x.md"
    words = ", ".join(f"word{number}" for number in range(1000))
    file.write_text(FINE.replace("[torch]", f"[{words}]"), encoding="utf-8")
    assert read_header(str(file)).needs[-1] == "word999"
