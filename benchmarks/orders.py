"""Apply random subsets of the rules in random orders, and check that all give the same text.

    python benchmarks/orders.py fixtures/scripts fixtures/rules --subsets 12

For every file that the fixes of two or more rules change, seeded subsets of these rules are drawn,
with safe fixes only or with all. The text after one `fix` with the subset is compared with that of

- the same `fix` with the rules registered in another order;
- one rule at a time, in a random order, repeated until no rule has anything left to fix;
- a random rule after every look at the text, out of those with anything left.

All must end in the same text, in which no rule of the subset has anything left to fix. That
includes fixes that depend on others (a transfer can be non-blocking once its loader pins). Where a
rule names others in `after`, those go first in every order, as in every `fix`: TL202 need not
detach what TL601 has put under `no_grad`. Unused imports are removed at the end, as in every `fix`.
TL002 is left out, since it judges comments by the selected rules.

Works in one process on texts and writes nothing. Prints every subset that gives two texts, reduced
to the fewest rules that still do, with the difference; exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import difflib
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from torchlint.config import Settings
from torchlint.edit import Edit, touch
from torchlint.engine import applies, check_source, fix_source
from torchlint.engine.keptimports import KeptImports, import_cleanup
from torchlint.engine.usedelsewhere import used_nowhere
from torchlint.finding import Finding
from torchlint.registry import RuleHead, Selection, load_registry
from torchlint.source import Source, SourceError

LOOKS = 200
"""More looks than any order needs; a text still changing after them never settles."""


class BrokenError(Exception):
    """A promise that a file breaks."""


@dataclass
class Script:
    """A file with its fixes, and caches of what rules make of it and of findings for its texts."""

    source: Source
    rules: Selection
    settings: Settings
    found: dict[str, list[Finding]] = field(default_factory=dict)
    made: dict[tuple[RuleHead, ...], str] = field(default_factory=dict)

    def fixed(self, rules: Selection) -> str:
        """Return the file after one `fix` with these rules."""
        if rules.rules not in self.made:
            result = fix_source(self.source, rules, self.settings)
            if not result.is_whole:
                raise BrokenError("; ".join((*result.errors, *result.warnings)))
            self.made[rules.rules] = result.after.text
        return self.made[rules.rules]

    def due(self, source: Source, codes: frozenset[str]) -> list[Finding]:
        """Return the findings of some rules in a text whose fixes may be applied now."""
        if source.text not in self.found:
            result = check_source(source, self.rules, self.settings)
            if not result.is_whole:
                raise BrokenError("; ".join((*result.errors, *result.warnings)))
            self.found[source.text] = [
                finding for finding in result.findings if applies(finding, self.settings)
            ]
        due = [finding for finding in self.found[source.text] if finding.code in codes]
        having = {finding.code for finding in due}
        waiting = {head.code for head in self.rules if not having.isdisjoint(head.load().after)}
        return [finding for finding in due if finding.code not in waiting]


Pick = Callable[[list[Finding]], list[Finding]]
"""Chooses the due findings whose fixes are applied before the next look."""


def rule_by_rule(codes: frozenset[str], chance: random.Random) -> Pick:
    """Apply rule by rule in a random order, each until it has nothing left."""
    turns = chance.sample(sorted(codes), len(codes))
    at = 0

    def pick(due: list[Finding]) -> list[Finding]:
        nonlocal at
        having = {finding.code for finding in due}
        while turns[at] not in having:
            at = (at + 1) % len(turns)
        return [finding for finding in due if finding.code == turns[at]]

    return pick


def look_by_look(_: frozenset[str], chance: random.Random) -> Pick:
    """Apply another rule after each look, whether it has anything left or not."""

    def pick(due: list[Finding]) -> list[Finding]:
        code = chance.choice(sorted({finding.code for finding in due}))
        return [finding for finding in due if finding.code == code]

    return pick


ORDERS = {"rule by rule": rule_by_rule, "look by look": look_by_look}


def edits_of(source: Source, picked: Sequence[Finding]) -> list[Edit]:
    """Return the edits of as many fixes as do not touch, the first ones first."""
    made: list[Edit] = []
    kept = KeptImports(source)
    for finding in picked:
        edits = [edit for edit in kept.edits([finding]) if edit not in made]
        if not any(touch(edit, other) for edit in edits for other in made):
            made += edits
    return made


def walked(script: Script, codes: frozenset[str], pick: Pick) -> str:
    """Fix a file in some order until no rule has anything left to fix."""
    source = script.source
    for _ in range(LOOKS):
        due = script.due(source, codes)
        edits = (
            edits_of(source, pick(due))
            if due
            else import_cleanup(script.source, source, used_nowhere)
        )
        if not edits:
            return source.text
        source = source.edited(edits)
    raise BrokenError(f"not at rest after {LOOKS} looks")


def difference(first: str, second: str) -> str:
    """Return the difference of two texts."""
    lines = difflib.unified_diff(
        first.splitlines(), second.splitlines(), "at once", "otherwise", lineterm="", n=1
    )
    return "\n".join(f"    {line}" for line in lines)


def apart(script: Script, codes: frozenset[str], order: str, seeds: Sequence[str]) -> str | None:
    """Return how the result of an order differs from that of one `fix`, None if it does not."""
    try:
        wanted = script.fixed(script.rules.without(set(script.rules.codes) - codes))
        for seed in seeds:
            text = walked(script, codes, ORDERS[order](codes, random.Random(seed)))
            if text != wanted:
                return difference(wanted, text)
    except BrokenError as error:
        return f"    {error}"
    return None


def smallest(
    script: Script, codes: frozenset[str], order: str, seed: str
) -> tuple[frozenset[str], str | None]:
    """Remove rules as long as some order of the others still gives another text."""
    seeds = [f"{seed} {number}" for number in range(5)]
    said = None
    for code in sorted(codes):
        fewer = codes - {code}
        still = apart(script, fewer, order, seeds) if len(fewer) > 1 else None
        if still is not None:
            codes, said = fewer, still
    return codes, said


def subsets(codes: Sequence[str], chance: random.Random) -> Iterator[frozenset[str]]:
    """Yield all codes, then random subsets of at least two, endlessly."""
    yield frozenset(codes)
    while True:
        yield frozenset(chance.sample(codes, chance.randint(2, len(codes))))


@dataclass
class Tally:
    """The counts over all trees so far."""

    files: int = 0
    subsets: int = 0
    broken: int = 0

    def tell(self, path: Path, said: str) -> None:
        """Count and print a broken promise."""
        self.broken += 1
        print(f"{path}: {said}", flush=True)


def compose(path: Path, script: Script, chance: random.Random, number: int, tally: Tally) -> None:
    """Check all rules that change a file, or random subsets of them."""
    made = fix_source(script.source, script.rules, script.settings)
    for error in (*made.errors, *made.warnings):
        tally.tell(path, error)
    codes = sorted({finding.code for finding in made.applied})
    if len(codes) < 2 or not made.is_whole:
        return
    heads = tuple(chance.sample(script.rules.rules, len(script.rules.rules)))
    if script.fixed(replace(script.rules, rules=heads)) != made.after.text:
        tally.tell(path, "rules registered in another order make another text")
    seed = str(chance.random())
    told: set[frozenset[str]] = set()
    for drawn in dict.fromkeys(islice(subsets(codes, chance), number)):
        tally.subsets += 1
        for order in ORDERS:
            said = apart(script, drawn, order, [seed])
            if said is not None:
                fewest, shorter = smallest(script, drawn, order, seed)
                if fewest not in told:
                    told.add(fewest)
                    tally.tell(path, f"{' '.join(sorted(fewest))}, {order}:\n{shorter or said}")


def examine(path: Path, rules: Selection, number: int, tally: Tally) -> None:
    """Check one file, some of the subsets with safe fixes only."""
    try:
        source = Source.from_bytes(path.read_bytes(), path.name)
    except SourceError:
        return
    tally.files += 1
    chance = random.Random(zlib.crc32(source.text.encode("utf-8", "surrogatepass")))
    safe = sum(chance.random() < 0.4 for _ in range(number - 1))
    for unsafe, share in ((True, number - safe), (False, safe)):
        if share:
            script = Script(source, rules, Settings(root=path.parent, unsafe_fixes=unsafe))
            try:
                compose(path, script, chance, share, tally)
            except BrokenError as error:
                tally.tell(path, str(error))


def python_files(trees: Sequence[Path]) -> Iterator[Path]:
    """Yield the Python files of trees, except in hidden folders."""
    for tree in trees:
        if tree.is_file():
            yield tree
        for path in sorted(tree.rglob("*.py")):
            below = path.relative_to(tree)
            if path.is_file() and not any(part.startswith(".") for part in below.parts):
                yield path


def main() -> None:
    """Parse the options, check every file and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", type=Path, nargs="+", help="folders with Python files, or files")
    parser.add_argument("--subsets", type=int, default=4, help="at most, of each file")
    options = parser.parse_args()
    rules = load_registry().select(Settings(select=("ALL",), ignore=("TL002",)))
    tally = Tally()
    for path in python_files(options.trees):
        examine(path, rules, options.subsets, tally)
    print(
        f"{tally.files} files, {tally.subsets} subsets of rules in {len(ORDERS)} orders each, "
        f"{tally.broken} broken promises"
    )
    sys.exit(1 if tally.broken else 0)


if __name__ == "__main__":
    main()
