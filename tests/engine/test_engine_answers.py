from __future__ import annotations

from tiny_rules import replacing, select

from torchlint.config import Settings
from torchlint.engine import fix_source
from torchlint.finding import Finding
from torchlint.source import Source


def fixed(text: str, refused: set[int], *rules: tuple[str, str, str]) -> tuple[str, list[int]]:
    """Fix a text but for the findings that are asked for at some places; give what was asked."""
    asked: list[int] = []

    def accept(source: Source, finding: Finding) -> bool:
        asked.append(source.position(finding.span.start).row)
        return len(asked) not in refused

    made = [replacing(old, new, code, f"rule-{code.lower()}") for old, new, code in rules]
    result = fix_source(Source("t.py", text), select(*made), Settings(), accept)
    return result.after.text, asked


MEND = ("slow", "fast", "AB102")


def test_alike_lines_are_asked_for_one_by_one() -> None:
    text, asked = fixed("slow\nslow\nslow\n", {2}, MEND)
    assert (text, asked) == ("fast\nslow\nfast\n", [1, 2, 3])


def test_what_was_refused_is_not_asked_for_where_edits_move_it() -> None:
    text, asked = fixed("cold\nslow\nslow\n", {3}, ("cold", r"warm\nwarm", "AB101"), MEND)
    assert (text, asked) == ("warm\nwarm\nfast\nslow\n", [1, 2, 3])


UNWRAP = r"with x:\n    (slow)\n"


def test_what_waits_is_asked_for_in_a_later_pass() -> None:
    text, asked = fixed("with x:\n    slow\n", set(), (UNWRAP, r"\1\n", "AB101"), MEND)
    assert (text, asked) == ("fast\n", [1, 1])


def test_what_was_refused_inside_a_range_written_anew_is_not_asked_for_again() -> None:
    text, asked = fixed("with x:\n    slow\n", {1}, MEND, (UNWRAP, r"\1\n", "AB103"))
    assert (text, asked) == ("slow\n", [2, 1])
