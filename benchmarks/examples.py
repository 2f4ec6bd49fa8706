"""Check that the examples of the pages keep their findings in other shapes, and list every breach.

    python benchmarks/examples.py                       # all rules, in all shapes: minutes
    python benchmarks/examples.py trainer factory TL2   # some shapes, and some rules

The statements of an example become a main function, whose script is reshaped: the body of a
training loop in a function (`step`), what is trained in attributes (`class`) or handed to a class
with a method of a step (`trainer`), built by a function (`factory`), losses computed by functions
(`loss`), keywords passed on in dictionaries (`options`) or kept in a dataclass (`config`). A shape
may change what is true, so each breach is read: a text that nothing trains with, a value that
another caller may change.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Iterator
from functools import partial
from multiprocessing import Pool
from typing import Final, NamedTuple

from attributes import handed_over, kept_on_self
from factoring import built_by_function, computed_by_function, configured
from reshaping import Reshaped
from restructuring import has_long_text, parsed, passed_on, stepped

from torchlint.config import Settings
from torchlint.engine import check_source
from torchlint.registry import load_registry
from torchlint.source import Source
from torchlint.testing.examples import Example, examples_of

SHAPES: Final = {
    "step": stepped,
    "class": kept_on_self,
    "trainer": handed_over,
    "factory": built_by_function,
    "loss": computed_by_function,
    "options": passed_on,
    "config": configured,
}
_TOP: Final = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


class Outcome(NamedTuple):
    """What a shape does to the findings of an example: `kept`, `moved`, `lost` or `new`."""

    code: str
    shape: str
    what: str
    sentence: str
    text: str


def outcomes(shapes: list[str], code: str) -> list[Outcome]:
    """Return the outcomes of some shapes for the examples of a rule."""
    return [outcome for example in _examples(code) for outcome in _outcomes(example, shapes)]


def _examples(code: str) -> Iterator[Example]:
    """Yield the examples of a rule that stand in one file."""
    chosen = load_registry().select(Settings(select=(code,), preview=True))
    for head in chosen.rules:
        if head.code == code:
            yield from (each for each in examples_of(head.load()) if not each.others)


def _outcomes(example: Example, shapes: list[str]) -> Iterator[Outcome]:
    whole = in_main(example.before)
    before = _rows(whole, example) if whole is not None else set()
    for shape in shapes if whole is not None else ():
        assert whole is not None
        made = SHAPES[shape](whole.text)
        if made is None:
            continue
        rows = tuple(whole.rows[row - 1] if row else 0 for row in made.rows)
        after = _rows(Reshaped(made.text, rows), example)
        what = "kept"
        if before - after:
            what = "moved" if len(after) >= len(before) else "lost"
        elif after - before:
            what = "new"
        yield Outcome(example.rule.code, shape, what, example.sentence, made.text)


def _rows(made: Reshaped, example: Example) -> set[int]:
    """Return the rows before of the findings of an example's rule, and those of their notes."""
    source = Source(example.path, made.text)
    code = example.rule.code
    chosen = load_registry().select(Settings(select=(code,), preview=True))
    found = check_source(source, chosen, example.settings).findings
    spans = [
        span
        for each in found
        if each.code == code
        for span in (each.span, *(note.span for note in each.notes if not note.path))
    ]
    return {made.rows[source.position(span.start).row - 1] for span in spans}


def in_main(text: str) -> Reshaped | None:
    """Move the statements of a text, all but imports and definitions, into `main`."""
    tree, lines = parsed(text)
    if tree is None:
        return None
    if any(isinstance(line, ast.FunctionDef) and line.name == "main" for line in tree.body):
        return Reshaped(text, tuple(range(1, len(lines) + 1)))
    top = [line for line in tree.body if isinstance(line, _TOP)]
    body = [line for line in tree.body if not isinstance(line, _TOP)]
    inner = [node for line in body for node in ast.walk(line)]
    stored = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    used = {node.id for line in top for node in ast.walk(line) if isinstance(node, ast.Name)}
    if not body or stored & used or any(map(has_long_text, body)):
        return None
    if any(isinstance(node, _TOP[2:]) for node in inner):
        return None
    made = [(lines[row - 1], row) for line in top for row in _span(line)]
    made.append(("def main():\n", 0))
    made += [(f"    {lines[row - 1]}", row) for line in body for row in _span(line)]
    made += [('if __name__ == "__main__":\n', 0), ("    main()\n", 0)]
    whole = "".join(line if line.endswith("\n") else f"{line}\n" for line, _ in made)
    return Reshaped(whole, tuple(row for _, row in made))


def _span(line: ast.stmt) -> range:
    """Return the rows of a statement with its decorators."""
    marks: list[ast.expr] = getattr(line, "decorator_list", [])
    return range(
        min([line.lineno, *(mark.lineno for mark in marks)]), (line.end_lineno or line.lineno) + 1
    )


def main() -> None:
    """Check the examples of rules in the shapes that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="*", help="shapes, and codes of rules or their beginnings")
    parser.add_argument("--quiet", action="store_true", help="print the tables alone")
    args = parser.parse_args()
    shapes = [each for each in args.what if each in SHAPES] or list(SHAPES)
    begins = tuple(each for each in args.what if each not in SHAPES) or ("TL",)
    rules = load_registry().select(Settings(select=("ALL",), preview=True)).rules
    codes = [head.code for head in rules if head.code.startswith(begins)]
    with Pool() as pool:
        made = [each for some in pool.imap(partial(outcomes, shapes), codes) for each in some]
    counted = Counter((each.shape, each.what) for each in made)
    kinds = ("kept", "moved", "lost", "new")
    print(f"{'shape':10}" + "".join(f"{what:>8}" for what in kinds))
    for shape in shapes:
        print(f"{shape:10}" + "".join(f"{counted[shape, what]:8}" for what in kinds))
    breaches = [each for each in made if each.what in ("lost", "new")]
    for each in () if args.quiet else breaches:
        print(f"\n## {each.code} {each.what} [{each.shape}] {each.sentence}\n{each.text}")
    raise SystemExit(bool(breaches))


if __name__ == "__main__":
    main()
