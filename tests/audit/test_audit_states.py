"""Every technique in every state that it can have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from audit_rows import catalogue, rows_of
from audit_scripts import SMALL
from tiny_rules import rule_of

from torchlint.audit import Row, Status, audit
from torchlint.audit.catalogue import FAMILIES
from torchlint.audit.survey import Survey
from torchlint.audit.technique import Technique
from torchlint.config import Settings
from torchlint.registry import Registry, RuleHead
from torchlint.source import Source
from torchlint.testing.examples import Example, examples_of

OWNED: Final = {
    code: technique.name
    for techniques in FAMILIES.values()
    for technique in techniques
    for code in technique.rules
}
UNOWNED: Final = {"TL001", "TL002"}
"""What these two speak of is no technique: a file that does not parse, a comment of torchlint's."""
HEADS: Final = [head for head in catalogue().rules if head.code in OWNED]
NEVER: Final = {
    Status.NOT_APPLICABLE: {
        "activation checkpointing",
        "repeated work of items cached",
        "choice of optimizer",
        "networks called, not their forward",
    },
    Status.CANNOT_TELL: {
        "autocast and scaler used correctly",
        "one concatenation, after the loop",
        "profilers off",
        "`detach()`, not `.data`",
        "metrics computed once an epoch",
    },
    Status.MISSING: {
        "inputs normalized",
        "CUDA graphs",
        "float8 matrix products",
        "parameters and optimizer state sharded",
        "averaged weights",
        "orthogonal updates for matrices (Muon)",
        "the compiler's mode",
        "equal blocks compiled one by one",
        "batches as they come, not in order",
    },
    Status.IN_USE: set[str](),
}
"""The techniques that cannot have a state, whatever the script."""


def first_example(head: RuleHead) -> Example:
    return next(each for each in examples_of(head.load()) if not each.valid)


def example_rows(head: RuleHead) -> dict[str, Row]:
    example = first_example(head)
    return rows_of(example.before, example.settings)


def test_every_rule_has_its_row() -> None:
    rows = rows_of("import torch\n")
    assert all(
        OWNED.get(head.code, head.name) in rows
        for head in catalogue().rules
        if head.code not in UNOWNED
    )


def test_a_rule_of_another_pack_has_a_row_of_its_own() -> None:
    other = rule_of("ZZ101", "word-of-theirs", lambda rule, text: iter(()), ("torch",))
    registry = Registry((*catalogue().rules, RuleHead.of(other)))
    done = audit(Source("train.py", "import torch\n"), registry, Settings())
    row = done.rows[-1]
    assert (row.family, row.technique, row.status) == (
        "other rules",
        "word-of-theirs",
        Status.CANNOT_TELL,
    )


def test_no_technique_stands_twice() -> None:
    names = [technique.name for techniques in FAMILIES.values() for technique in techniques]
    assert len(names) == len(set(names))


def test_a_technique_names_the_articles_of_its_rules() -> None:
    for techniques in FAMILIES.values():
        for technique in techniques:
            codes = set(technique.rules) & set(catalogue().known)
            named = {each for code in codes for each in catalogue().find(code).load().articles}
            assert named <= set(technique.articles), technique.name


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.code)
def test_what_a_rule_finds_is_missing(head: RuleHead) -> None:
    told = [row for row in example_rows(head).values() if head.code in row.rules]
    assert told
    for row in told:
        assert row.status is Status.MISSING
        assert row.line is not None
        assert row.why


def reached() -> Iterator[tuple[str, Status]]:
    for text in SMALL.values():
        for name, row in rows_of(text).items():
            yield name, row.status
    for head in HEADS:
        for name, row in example_rows(head).items():
            yield name, row.status


def test_every_technique_is_seen_in_every_state_that_it_can_have() -> None:
    seen = set(reached())
    names = [technique.name for techniques in FAMILIES.values() for technique in techniques]
    able = {name: {state for state in Status if name not in NEVER[state]} for name in names}
    assert {name: {state for each, state in seen if each == name} for name in names} == able


@pytest.mark.parametrize("name", SMALL)
def test_a_row_says_where_or_why(name: str) -> None:
    for row in rows_of(SMALL[name]).values():
        assert row.why
        assert (row.line is not None) == (row.status in (Status.IN_USE, Status.MISSING))
        assert bool(row.gain) <= (row.status is Status.MISSING)


def test_a_tuned_script_lacks_nothing() -> None:
    rows = rows_of(SMALL["everything tuned"])
    assert {name: row.why for name, row in rows.items() if row.status is Status.MISSING} == {}


SLOW: Final = "import torch\n\ntorch.autograd.set_detect_anomaly(True)\n"
DEBUGGING: Final = "no debugging tools left on"


def test_a_comment_that_silences_a_rule_is_heard() -> None:
    assert rows_of(SLOW)[DEBUGGING].status is Status.MISSING
    row = rows_of(SLOW.rstrip() + "  # noqa: TL801\n")[DEBUGGING]
    assert (row.status, row.why) == (Status.NOT_APPLICABLE, "a comment silences TL801 on line 3")


@pytest.mark.parametrize(
    "settings",
    [Settings(ignore=("TL8",)), Settings(per_file_ignores={"*.py": ("anomaly-detection",)})],
)
def test_settings_that_ignore_a_rule_are_heard(settings: Settings) -> None:
    row = rows_of(SLOW, settings)[DEBUGGING]
    assert (row.status, row.why) == (Status.NOT_APPLICABLE, "your settings ignore TL801")


def test_rules_run_that_are_not_selected() -> None:
    assert rows_of(SLOW, Settings(select=("TL1",)))[DEBUGGING].status is Status.MISSING


def test_a_rule_that_needs_a_newer_torch_does_not_speak() -> None:
    text = first_example(catalogue().find("TL310")).before
    assert rows_of(text)["fused attention"].status is Status.MISSING
    row = rows_of(text, Settings(target_torch=(1, 13)))["torch's own pointwise functions"]
    assert row.status is not Status.MISSING
    row = rows_of(text, Settings(target_torch=(1, 13)))["fused attention"]
    assert row.status is Status.NOT_APPLICABLE


def test_the_device_in_use_decides() -> None:
    text = SMALL["everything plain"]
    assert rows_of(text)["mixed precision"].status is Status.MISSING
    row = rows_of(text, Settings(target_device="cpu"))["mixed precision"]
    assert (row.status, row.why) == (Status.NOT_APPLICABLE, "the target device is the CPU")


def test_options_of_a_loader_are_read_in_the_dictionary_that_holds_them() -> None:
    text = """
import torch
from torch.utils.data import DataLoader
options = dict(batch_size=32, num_workers=4, pin_memory=True)
def train(net, dataset, optimizer):
    for x, y in DataLoader(dataset, **options):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x.cuda()), y.cuda()).backward()
        optimizer.step()
"""
    rows = rows_of(text)
    for name in ("workers load batches", "batches in pinned memory", "batch size"):
        assert (rows[name].status, rows[name].line) == (Status.IN_USE, 4)


def test_a_technique_that_fails_costs_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(survey: Survey) -> None:
        raise RecursionError("no end")

    broken = Technique("broken", (), (failing,))
    monkeypatch.setitem(FAMILIES, "of this test", (broken,))
    done = audit(Source("train.py", "import torch\n"), catalogue(), Settings())
    (row,) = (row for row in done.rows if row.technique == "broken")
    assert row.status is Status.CANNOT_TELL
    assert len(done.rows) > 20
    assert done.errors == ()
    (said,) = done.warnings
    assert said.startswith("internal error in the technique `broken` on train.py (please report)")
