from __future__ import annotations

import subprocess
import sys

import pytest
from cli_shell import Shell

from torchlint.edit import Span
from torchlint.engine.ignorecomments import annotate
from torchlint.finding import Finding
from torchlint.source import Source

KNOWN = {"XY201": "slow-call", "XY401": "heavy-call", "TL001": "unparsable-file"}


def annotated(text: str, *places: tuple[str, str]) -> str:
    """Silence findings, each a code and the text it is about, and give the new text."""
    findings = [
        Finding(code, Span(text.index(part), text.index(part) + len(part)), "")
        for code, part in places
    ]
    result = annotate(Source("a.py", text), findings, KNOWN)
    again = annotate(result.source, [], KNOWN)
    assert again.source.text == result.source.text
    assert not result.refused
    return result.source.text


@pytest.mark.parametrize(
    ("before", "part", "after"),
    [
        ("slow()\n", "slow", "slow()  # torchlint: ignore[XY201]\n"),
        ("slow()", "slow", "slow()  # torchlint: ignore[XY201]"),
        ("slow()   \r\nx\r\n", "slow", "slow()  # torchlint: ignore[XY201]   \r\nx\r\n"),
        ("slow()  # why\n", "slow", "slow()  # why  # torchlint: ignore[XY201]\n"),
        (
            "f(\n    slow(),\n    1)\n",
            "slow",
            "f(\n    slow(),  # torchlint: ignore[XY201]\n    1)\n",
        ),
        (
            "f(slow(), '''a\nb''',\n  1)\n",
            "slow",
            "f(slow(), '''a\nb''',\n  1)  # torchlint: ignore[XY201]\n",
        ),
        (
            "f(slow(), f'''a\n{b}\nc''')\n",
            "slow",
            "f(slow(), f'''a\n{b}\nc''')  # torchlint: ignore[XY201]\n",
        ),
        (
            "x = slow() + \\\n    1\n",
            "slow",
            "x = slow() + \\\n    1  # torchlint: ignore[XY201]\n",
        ),
        (
            "for x in slow():\n    pass\n",
            "slow",
            "for x in slow():  # torchlint: ignore[XY201]\n    pass\n",
        ),
        (
            "slow()  # torchlint: ignore[XY401] on purpose\n",
            "slow",
            "slow()  # torchlint: ignore[XY401, XY201] on purpose\n",
        ),
        (
            "slow()  # noqa: E501\n",
            "slow",
            "slow()  # noqa: E501  # torchlint: ignore[XY201]\n",
        ),
        ("slow()  # torchlint: ignore[XY2]\n", "slow", "slow()  # torchlint: ignore[XY2]\n"),
    ],
    ids=[
        "one line",
        "no newline at the end",
        "spaces and CRLF at the end",
        "behind a comment",
        "inside brackets",
        "beside a string of several lines",
        "beside an f-string of several lines",
        "before a backslash",
        "the head of a loop",
        "into the list that is there",
        "beside another tool's",
        "already silenced",
    ],
)
def test_the_comment_stands_where_one_is_legal(before: str, part: str, after: str) -> None:
    assert annotated(before, ("XY201", part)) == after


def test_codes_of_one_line_share_a_comment() -> None:
    text = "slow(heavy())\n"
    expected = "slow(heavy())  # torchlint: ignore[XY201, XY401]\n"
    assert annotated(text, ("XY401", "heavy"), ("XY201", "slow")) == expected


def test_a_file_that_does_not_parse_is_left_alone() -> None:
    source = Source("a.py", "x = (\n")
    finding = Finding("TL001", Span(0, 1), "")
    result = annotate(source, [finding], KNOWN)
    assert (result.source, result.refused) == (source, (finding,))


def test_every_finding_is_silenced_once_and_the_script_is_the_same(quick: Shell) -> None:
    quick.write("a.py", "def f(*a): print(a)\nslow = heavy = f\nslow(\n  'a'\n  '''b\n''')\n")
    before = subprocess.run([sys.executable, "a.py"], cwd=quick.folder, capture_output=True)
    done = quick.check("--add-ignore")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Silenced 3 findings in 1 file.\n"
    assert quick.check().returncode == 0
    text = quick.read("a.py")
    assert quick.check("--add-ignore").stderr == "Silenced 0 findings in 0 files.\n"
    assert quick.check("--add-ignore", "--ignore-suppressions").returncode == 0
    assert quick.read("a.py") == text
    after = subprocess.run([sys.executable, "a.py"], cwd=quick.folder, capture_output=True)
    assert after.stdout == before.stdout


def test_what_no_comment_can_silence_is_named(quick: Shell) -> None:
    quick.write("a.py", "import torch\nx = (\n")
    done = quick.run("check", "--select", "TL001", "--add-ignore", "--no-cache")
    assert done.returncode == 1
    assert "TL001 is not silenced: no comment may stand there" in done.stderr
    assert quick.read("a.py") == "import torch\nx = (\n"
