"""The lists of rules in `docs/`, and the measurements beside the rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from torchlint.docs.chart import picture, speed_chart
from torchlint.measurement import EVIDENCE, Measurement, measurements
from torchlint.page.files import PAGE, pack_folder
from torchlint.registry import RegistryError, load_registry
from torchlint.report.card import card_of
from torchlint.rule import Rule
from torchlint.testing.checkout import Checkout

_GENERATED: Final = "<!-- Written by `python -m torchlint.docs` from the rules: edit those. -->"
LAST: Final = "S3"
"""The key of the article that rules use; `S0` to `S2` are texts without a public address."""

TITLE: Final = "Faster Deep Learning Training with PyTorch"

ORIGIN: Final = (
    "Many rules look for what an article of 2021 advises: "
    f"[{TITLE}](https://efficientdl.com/faster-deep-learning-in-pytorch-a-guide/) by Lorenz Kuhn. "
    "Below are its tips and their rules. Most of them are also in PyTorch's "
    "[Performance Tuning Guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)."
)

TIPS: Final = (
    "Learning-rate schedule",
    "Workers and pinned memory",
    "Batch size",
    "Mixed precision",
    "Choice of optimizer",
    "cuDNN autotuner",
    "Transfers between host and device",
    "Activation checkpointing",
    "Gradient accumulation",
    "Training on several GPUs",
    "Gradients set to None",
    "Tensors that share memory with arrays",
    "Debugging tools switched off",
    "Gradient clipping",
    "No bias before batch norm",
    "No gradients in evaluation",
    "Normalized inputs and batch norm",
)
"""The subjects of the seventeen tips, in order."""

BONUS: Final = "bonus"
"""The word after the key for advice outside of the tips."""


def files(tree: Checkout) -> dict[Path, str]:
    """Return the expected content of every generated file; raises `RegistryError`."""
    rules = rules_of(tree)
    return {
        tree.rules / EVIDENCE: json.dumps(evidence_of(tree), indent=2) + "\n",
        tree.docs / "rules" / "index.md": _text(_index(rules, "../../rules/torchlint_rules")),
        **{path: _recounted(path, len(rules)) for path in _counting(tree)},
        tree.docs / "check.svg": picture(tree),
        tree.docs / "speed.svg": speed_chart(rules, evidence_of(tree)),
        tree.docs / "articles.md": _text(_articles(rules, "../rules/torchlint_rules")),
    }


def _counting(tree: Checkout) -> tuple[Path, ...]:
    """Return the pages that say how many rules there are."""
    pages = (tree.root / "README.md", tree.docs / "guide" / "comparison.md")
    return tuple(page for page in pages if page.is_file())


def _recounted(page: Path, count: int) -> str:
    return re.sub(r"\b\d+ rules about", f"{count} rules about", page.read_text(encoding="utf-8"))


def refuted(tree: Checkout) -> list[str]:
    """Return the claims of rules that the measurements of this tree contradict."""
    return list(contradictions(rules_of(tree), evidence_of(tree)))


def rules_of(tree: Checkout) -> list[type[Rule]]:
    """Import the rules of this tree, whatever other packs are installed."""
    heads = load_registry().rules
    own = [head for head in heads if Path(pack_folder(head.file)).resolve() == tree.rules.resolve()]
    if not own:
        raise RegistryError("the torchlint that runs is not the one of this source tree")
    return [head.load() for head in own]


def evidence_of(tree: Checkout) -> dict[str, Any]:
    """Return the measurements on the fixtures, by code."""
    return {
        file.parent.name.partition("_")[0].upper(): json.loads(file.read_text(encoding="utf-8"))
        for file in sorted(tree.fixtures.glob(f"*/{EVIDENCE}"))
    }


def _index(rules: Sequence[type[Rule]], folder: str) -> Iterator[str]:
    on = sum(rule.default for rule in rules)
    yield "# Rules"
    yield ""
    yield (
        f"{len(rules)} rules, {on} of them on by default; `--preview` adds the others, whose pages "
        "say why they are off. They are listed [by tip](../articles.md), too."
    )
    for category, group in groupby(rules, key=lambda rule: card_of(rule).category or ""):
        members = list(group)
        yield from ("", f"## {category.capitalize()} ({members[0].code[:3]})", "")
        yield "| rule | what it finds | best fix | impact |"
        yield "|---|---|---|---|"
        for rule in members:
            yield _row(rule, folder)


def _row(rule: type[Rule], folder: str) -> str:
    remarks = [] if rule.since <= (1, 0) else [f"torch {'.'.join(map(str, rule.since))}"]
    if not rule.default:
        remarks.append("preview")
    said = f" ({', '.join(remarks)})" if remarks else ""
    cells = (
        _link(rule, folder),
        f"**{rule.name}**: {rule.summary}{said}".replace("|", "\\|"),
        "" if rule.safety is None else rule.safety.word,
        rule.impact,
    )
    return f"| {' | '.join(cells)} |"


def _link(rule: type[Rule], folder: str) -> str:
    """Return a link to the page beside the rule."""
    page = Path(rule.page_file)
    parts = page.parts[-2:] if page.name == PAGE else page.parts[-1:]
    return f"[{rule.code}]({folder}/{'/'.join(parts)})"


def _articles(rules: Sequence[type[Rule]], folder: str) -> Iterator[str]:
    yield "# Rules by tip"
    yield ""
    yield ORIGIN
    yield from _tips(rules, folder)


def _tips(rules: Sequence[type[Rule]], folder: str) -> Iterator[str]:
    for number in (*range(1, len(TIPS) + 1), BONUS):
        source = f"{LAST}.{number}"
        yield from ("", f"## {tip_of(source)}", "")
        found = list(_advised(source, rules, folder))
        yield from found or ("No rule reports it; `torchlint audit` checks whether it is in use.",)


def _advised(source: str, rules: Sequence[type[Rule]], folder: str) -> Iterator[str]:
    for rule in rules:
        if source in rule.articles:
            yield f"- {_link(rule, folder)} {rule.name}: {rule.summary}"


def _text(lines: Iterable[str]) -> str:
    return "\n".join((_GENERATED, "", *lines, ""))


def contradictions(
    rules: Sequence[type[Rule]], evidence: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[str]:
    """Yield a line for each default rule whose claim the measurements contradict.

    An impact of medium or high claims a faster step, a low one only that no step is slower.
    Measurements on an accelerator decide; those on a CPU count where there are no others, and
    the rule is not for accelerators. A rule that is off by default claims nothing.
    """
    for rule in rules:
        if not rule.default or rule.gain != "speed":
            continue
        refuting = ("SLOWER",) if rule.impact == "low" else ("SAME", "SLOWER")
        for each in _decisive(rule, measurements(evidence.get(rule.code, ()))):
            if each.verdict in refuting:
                yield (
                    f"{rule.code} claims impact {rule.impact}, but was measured {each.verdict} "
                    f"on {each.device}, torch {each.torch}: write `default: false`, or claim less"
                )


def _decisive(rule: type[Rule], found: Sequence[Measurement]) -> Sequence[Measurement]:
    accelerators = [each for each in found if not each.on_cpu]
    if accelerators or rule.device == "accelerator":
        return accelerators
    return found


def tip_of(source: str) -> str:
    """Return the heading of the tip of `S3.7`."""
    number = source.partition(".")[2]
    return "Other advice" if number == BONUS else f"{number}. {TIPS[int(number) - 1]}"
