from __future__ import annotations

from collections.abc import Iterator

import pytest
from tiny_rules import broken, finding, replacing, rule_of, select

from torchlint.config import Settings
from torchlint.edit import Edit, Span, apply_edits, clash
from torchlint.engine import FixResult, applies, fix_bytes, fix_source
from torchlint.finding import Finding, Fix, Safety
from torchlint.rule import Rule
from torchlint.source import Source


def _fix(text: str, *rules: type[Rule], unsafe: bool = False) -> FixResult:
    return fix_source(Source("train.py", text), select(*rules), Settings(unsafe_fixes=unsafe))


def _edits(code: str, name: str, *groups: tuple[tuple[str, str], ...]) -> type[Rule]:
    """Return a rule that has one fix for each group: of the first place of each old text."""

    def found(rule: Rule, text: str) -> Iterator[Finding]:
        for group in groups:
            if all(old in text for old, _ in group):
                spans = [Span(text.index(old), text.index(old) + len(old)) for old, _ in group]
                edits = tuple(Edit(span, new) for span, (_, new) in zip(spans, group, strict=True))
                yield Finding(rule.code, spans[0], "edit this", Fix.exact("Edit", edits))

    return rule_of(code, name, found, tuple(old.strip() for group in groups for old, _ in group))


def test_fixes_of_several_rules_are_made_together() -> None:
    result = _fix("a = b\n", replacing("a", "x"), replacing(r"b\b", "y", "TL904", "other"))
    assert result.after.text == "x = y\n"
    assert [each.code for each in result.applied] == ["TL902", "TL904"]
    assert (result.left, result.is_whole) == ((), True)


def test_a_fix_is_made_whole_or_not_at_all() -> None:
    both = _edits("TL904", "both", (("first", "one"), ("second", "two")))
    blocked = _edits("TL902", "blocked", (("second(", "third("),))
    result = _fix("first(second(1))\n", both, blocked)
    assert result.after.text == "first(third(1))\n"


def _late(old: str, new: str, *after: str) -> type[Rule]:
    rule = replacing(old, new, "TL901", "late")
    rule.after = after
    return rule


def test_fixes_wait_for_those_of_rules_that_go_first() -> None:
    result = _fix("x = 1\n", _late("x", "z", "TL905"), replacing("x", "y", "TL905", "first"))
    assert result.after.text == "y = 1\n"


def test_nothing_waits_for_a_rule_that_is_not_due_in_the_file() -> None:
    result = _fix("x = 1\n", _late("x", "z", "TL905"), replacing("v", "y", "TL905", "first"))
    assert result.after.text == "z = 1\n"


def test_nothing_waits_for_a_fix_that_was_refused() -> None:
    rules = select(_late("x", "z", "TL905"), replacing("x", "y", "TL905", "first"))
    source = Source("train.py", "x = 1\n")
    result = fix_source(source, rules, Settings(), lambda _, finding: finding.code == "TL901")
    assert result.after.text == "z = 1\n"


def test_rules_that_wait_for_each_other_go_together() -> None:
    other = replacing("w", "y", "TL905", "first")
    other.after = ("TL901",)
    assert _fix("x = w\n", _late("x", "z", "TL905"), other).after.text == "z = y\n"


def test_an_edit_that_fixes_share_is_made_once() -> None:
    shared = ("import a\n", "import a; import os\n")
    rule = _edits("TL904", "sharing", (shared, ("one", "1")), (shared, ("two", "2")))
    result = _fix("import a\none + two\n", rule)
    assert result.after.text == "import a; import os\n1 + 2\n"
    assert len(result.applied) == 2


def test_fixes_that_touch_are_made_in_later_passes() -> None:
    result = _fix("f(a)(b)\n", replacing(r"f\(a\)", "g(a)"), replacing(r"a\)\(b", "c)(d", "TL904"))
    assert result.after.text == "g(c)(d)\n"


def test_a_fix_that_makes_another_due_needs_no_second_run() -> None:
    result = _fix("x = a\n", replacing(r"a\b", "b"), replacing(r"b\b", "c", "TL904", "next"))
    assert result.after.text == "x = c\n"


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("x = (", "does not compile"),
        ("return 1", "does not compile: 'return' outside function"),
    ],
)
def test_a_fix_that_breaks_the_file_is_withheld_and_its_rule_named(new: str, said: str) -> None:
    text = "fine = 1\nx = 1\nfine = 2\n"
    result = _fix(text, replacing("fine", "good"), replacing("x = 1", new, "TL904", "bad"))
    assert result.after.text == "good = 1\nx = 1\ngood = 2\n"
    assert [each.code for each in result.left] == ["TL904"]
    (error,) = result.warnings
    assert error.startswith(
        f"internal error in TL904 on train.py:2:1 (please report): its fix {said}"
    )
    assert error.endswith("it was not applied")


def test_a_fix_that_loses_a_comment_is_withheld() -> None:
    result = _fix("x = 1  # why\ny = 2\n", replacing("x = 1  # why\n", ""))
    assert not result.changed
    assert (
        "TL902 on train.py:1:1 (please report): its fix loses the comment `# why`"
        in result.warnings[0]
    )


def test_a_suppression_may_go_by_an_edit_of_its_own_only() -> None:
    text = "x = 1  # noqa: E501\ny = 2\n"
    gone = _fix(text, replacing("  # noqa: E501", ""))
    assert (gone.after.text, gone.warnings) == ("x = 1\ny = 2\n", ())
    kept = _fix(text, replacing("x = 1  # noqa: E501\n", ""))
    assert not kept.changed
    assert "loses the comment `# noqa: E501`" in kept.warnings[0]


def test_a_comment_that_moves_is_kept() -> None:
    result = _fix("x = 1  # why\n", replacing("x = 1  # why", "# why\nz = 1"))
    assert result.after.text == "# why\nz = 1\n"


def test_a_fix_that_changes_nothing_is_an_error() -> None:
    result = _fix("x = 1\n", replacing("x", "x"))
    assert not result.changed
    assert "its fix changes nothing" in result.warnings[0]


def test_edits_of_one_fix_that_clash_are_an_error() -> None:
    rule = _edits("TL904", "clashing", (("x = 1", "y = 1"), ("= 1", "= 2")))
    result = _fix("x = 1\n", rule)
    assert not result.changed
    assert "has edits that clash" in result.warnings[0]


def test_fixes_that_undo_each_other_end() -> None:
    result = _fix("a = 1\n", replacing(r"a\b", "b"), replacing(r"b\b", "a", "TL904", "back"))
    assert "did not settle within 10 passes" in result.warnings[0]
    compile(result.after.text, "", "exec")


def test_a_rule_that_fails_is_reported_once() -> None:
    result = _fix("x = a\n", broken(), replacing(r"a\b", "b"))
    assert result.after.text == "x = b\n"
    assert len(result.warnings) == 1


def test_unsafe_fixes_need_leave() -> None:
    rule = replacing("x", "y", safety=Safety.UNSAFE)
    held = _fix("x = 1\n", rule)
    assert not held.changed
    assert not applies(held.left[0], Settings())
    assert applies(held.left[0], Settings(unsafe_fixes=True))
    assert _fix("x = 1\n", rule, unsafe=True).after.text == "y = 1\n"


def test_a_fix_to_show_is_never_made() -> None:
    assert not _fix("x = 1\n", replacing("x", "y", safety=Safety.SHOW), unsafe=True).changed


def test_a_silenced_finding_is_not_fixed() -> None:
    result = _fix("x = 1  # noqa: TL902\nx = 2\n", replacing("x", "y"))
    assert result.after.text == "x = 1  # noqa: TL902\ny = 2\n"
    assert result.suppressed == 1


def test_unused_suppressions_are_removed() -> None:
    text = "a = 1  # noqa: E501, TL901 # why\n# torchlint: ignore-file[TL901]\nb = 1\n"
    result = _fix(text, finding("x"))
    assert result.after.text == "a = 1  # noqa: E501 # why\nb = 1\n"
    assert [each.code for each in result.applied] == ["TL002", "TL002"]


def test_a_reader_is_asked_once_for_each_fix() -> None:
    asked = []

    def accept(source: Source, found: Finding) -> bool:
        asked.append(source.text[found.span.start : found.span.end])
        return len(asked) != 2

    rules = select(replacing(r"a\b", "b"), replacing(r"c\b", "d", "TL904", "next"))
    result = fix_source(Source("t.py", "a\nc\na + 1\n"), rules, Settings(), accept)
    assert result.after.text == "b\nd\na + 1\n"
    assert asked == ["a", "a", "c"]


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfx = 1\r\ny = '\xc3\xa9'",
        b"# -*- coding: latin-1 -*-\nx = 1\ny = '\xe9'\n",
        b"x = 1\n\x0c\nif 1:\n\t2\n",
        b"x = 1;  y = 2\r",
        b"",
    ],
)
def test_bytes_outside_the_edits_stay(data: bytes) -> None:
    result = fix_bytes(data, "t.py", select(replacing("x = 1", "z = 3")), Settings())
    assert result.is_whole
    assert result.after.to_bytes() == data.replace(b"x = 1", b"z = 3")


def test_a_text_that_its_encoding_lacks_is_not_made() -> None:
    data = b"# coding: latin-1\nx = 1\n"
    result = fix_bytes(data, "t.py", select(replacing("x = 1", "x = '\u20ac'")), Settings())
    assert result.after.to_bytes() == data
    assert "cannot be written: '\u20ac' is not" in result.warnings[0]


def test_a_line_that_pushes_the_encoding_down_is_not_made() -> None:
    data = b"#!/usr/bin/python\n# coding: latin-1\nx = '\xe9'\n"
    rule = replacing("#!/usr/bin/python\n", "#!/usr/bin/python\nimport os\nimport re\n")
    result = fix_bytes(data, "t.py", select(rule), Settings())
    assert not result.changed
    assert "cannot be written" in result.warnings[0]


def test_bytes_that_are_no_text_are_left() -> None:
    result = fix_bytes(b"x = '\xff'\n", "t.py", select(replacing("x", "y")), Settings())
    assert [each.code for each in result.left] == ["TL001"]
    assert not result.changed


def test_what_ends_a_line_goes_before_a_new_line_that_is_put_at_the_same_place() -> None:
    line, ending = Edit(Span(5, 5), "\ny = x"), Edit(Span(5, 5), ")")
    assert apply_edits("x = (", [line, ending]) == "x = ()\ny = x"
    assert clash(line, Edit(Span(5, 5), "\nz = x"))
