"""Check laws that hold without any expected output, and list every breach.

    python benchmarks/laws.py append                    # all fixtures, with all donors: minutes
    python benchmarks/laws.py append --donors hand      # with the hand-made donors alone
    python benchmarks/laws.py append some/repository --program  # each file with its program
    python benchmarks/laws.py cut some/scripts          # other files
    python benchmarks/laws.py rename order wrap step options class trainer factory loss config

append: a definition that nothing calls and that uses nothing of the file changes no other finding
        and no fix. Donors are the definitions of other scripts, and those of `neighbours.py`.
        A script that looks definitions up by name is left out: it may call any of them.
beside: a function that runs with a network and an optimizer of its own changes no other finding.
        One that uses a GPU is left out for scripts that name none: whether there is one is
        global to a process.
cut:    a script cut into modules (`cutting.py`), checked as one program, has the findings and
        classes of fixes (none for a fix that edits two modules) of the script, checked as a program
        of its own; with `main` in its own module and with `main` among the functions.
rename: locals and parameters with neutral names change no finding.
order:  the order of functions changes no finding.
wrap:   the main body in `def main()`, called under a guard, changes no finding but those that
        advise the guard.
step:   the body of a loop that goes backward in a function that the loop calls changes no finding.
options: keywords of what is made, passed on in a dictionary, change no finding.
class:  training in a class, with what it needs in attributes, changes no finding.
trainer: a class that is handed what `main` makes, with a method of a step, changes no finding.
factory: what `main` makes, built by a function that returns it, changes no finding.
loss:   losses computed by functions change no finding.
config: literal keywords in the fields of a dataclass change no finding.

Findings of one rule that one finding tells together may be told apart, and the other way round.

Prints a table by rule of findings that are kept, lost, new, or kept with another fix, and then the
breaches, unless `--quiet`. Exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from attributes import handed_over, kept_on_self
from cutting import Module, cut, write
from factoring import built_by_function, computed_by_function, configured
from neighbours import HAND, RUN, beside, donor_of
from reshaping import Reshaped, renamed, reordered, wrapped
from restructuring import passed_on, stepped

from torchlint.config import Settings
from torchlint.edit import Span
from torchlint.engine import Project, check_paths, check_source
from torchlint.engine.programs import Programs
from torchlint.engine.results import FileResult
from torchlint.finding import Finding
from torchlint.registry import Selection, load_registry
from torchlint.source import Source

ROOT: Final = Path(__file__).resolve().parents[1]
FIXTURES: Final = ROOT / "fixtures"
OWN: Final = frozenset({"TL001", "TL002"})
"""Codes about the text of a file, not about what it does."""


class Place(NamedTuple):
    """What identifies a finding: its rule and where it stands."""

    code: str
    row: int
    column: int


_LOOKUPS: Final = re.compile(r"\b(?:globals|exec)\(")
_USES_GPU: Final = re.compile(r"\.cuda[.(]")
_NAMES_GPU: Final = re.compile(r"cuda|mps|accelerator")
_ADVISING_GUARD: Final = frozenset({"TL101"})

Findings = dict[Place, str]
"""The fix of each finding, as text that must stay the same; `NOTED` for further places of one."""
NOTED: Final = "noted"


class Breach(NamedTuple):
    """A finding that is lost, new, or has another fix."""

    law: str
    script: str
    change: str
    what: str
    place: Place


class Outcome(NamedTuple):
    """The comparison of one script before and after a change."""

    kept: Counter[str]
    breaches: tuple[Breach, ...]


# -- checking -----------------------------------------------------------------------------------


@cache
def _rules() -> Selection:
    return load_registry().select(Settings(select=("ALL",), ignore=tuple(OWN)))


def found(
    text: str, name: str, *, whole: bool = True, programs: Programs | None = None
) -> Findings:
    """Return the findings in a text with their edits, or with the class of the fix alone."""
    settings = Settings(unsafe_fixes=True)
    source = Source(name, text)
    linked = programs.link(source, settings) if programs is not None else None
    made = check_source(source, _rules(), settings, linked=linked).findings
    return _placed(made, source, whole=whole)


def _placed(
    made: Iterable[Finding], source: Source, row_of: Callable[[int], int] = int, *, whole: bool
) -> Findings:
    """Return the fixes of findings by their places; `row_of` maps rows of the source."""

    def place(code: str, span: Span) -> Place:
        position = source.position(span.start)
        return Place(code, row_of(position.row), position.column)

    findings: Findings = {}
    noted: Findings = {}
    for each in made:
        fix = ""
        if each.fix is not None:
            fix = repr(each.fix.edits) if whole else each.fix.safety.word
        findings[place(each.code, each.span)] = fix
        here = (note.span for note in each.notes if not note.path)
        noted |= {place(each.code, span): NOTED for span in here}
    return {at: NOTED for at in noted if at not in findings} | findings


def compared(law: str, script: str, change: str, before: Findings, after: Findings) -> Outcome:
    """Compare the findings before and after a change that must not matter.

    A place that a finding of the same rule tells as a further one is neither lost nor new.
    """
    kept: Counter[str] = Counter()
    breaches = []
    for place, fix in before.items():
        if fix == NOTED:
            continue
        if place not in after:
            breaches.append(Breach(law, script, change, "lost", place))
        elif after[place] not in (fix, NOTED):
            breaches.append(Breach(law, script, change, "fix", place))
        else:
            kept[place.code] += 1
    breaches += [
        Breach(law, script, change, "new", place)
        for place, fix in after.items()
        if place not in before and fix != NOTED
    ]
    return Outcome(kept, tuple(breaches))


# -- the laws -----------------------------------------------------------------------------------


def append(
    path: Path,
    donors: Sequence[tuple[str, str]],
    programs: Programs | None = None,
    law: str = "append",
) -> Iterator[Outcome]:
    """Append each donor to a script, which is judged with its program if `programs` are given."""
    text = _read(path)
    if _LOOKUPS.search(text):
        return
    rows = len(text.rstrip().splitlines())
    before = found(text, str(path), programs=programs)
    for name, donor in donors:
        neighbour = beside(text, donor)
        if name == _label(path) or neighbour is None:
            continue
        if law == "beside" and _USES_GPU.search(donor) and not _NAMES_GPU.search(text):
            continue
        after = found(f"{text.rstrip()}\n\n\n{neighbour}", str(path), programs=programs)
        own = {place: fix for place, fix in after.items() if place.row <= rows}
        yield compared(law, _short(path), name, before, own)


def cut_up(path: Path) -> Iterator[Outcome]:
    """Cut a script in two ways, and check the modules of each as one program, as is the script."""
    source = Source(str(path), _read(path))
    made: tuple[Finding, ...] = ()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(source.text, encoding="utf-8")
        for result in _checked([script], Path(folder)):
            made = result.findings
    for moved in (False, True):
        modules = cut(source.text, moved=moved)
        if modules is not None:
            with tempfile.TemporaryDirectory() as folder:
                after = _of_program(modules, Path(folder))
            divided = [each for each in made if _is_across(each, source, modules)]
            unfixed = [
                place
                for place, fix in _placed(divided, source, whole=False).items()
                if fix != NOTED and not after.get(place)
            ]
            before = _placed(made, source, whole=False) | dict.fromkeys(unfixed, "")
            change = "main among the functions" if moved else "main alone"
            yield compared("cut", _short(path), change, before, after)


def _of_program(modules: Sequence[Module], folder: Path) -> Findings:
    """Return the findings of a folder at their places in the script."""
    by_name = {module.name: module for module in modules}
    findings: Findings = {}
    for result in _checked(write(modules, folder), folder):
        module = by_name[Path(result.path).stem]
        if result.source is not None:
            findings |= _placed(result.findings, result.source, module.row, whole=False)
    return findings


def _checked(files: Sequence[Path], folder: Path) -> Iterator[FileResult]:
    """Check the files of a folder as one program."""
    (folder / "pyproject.toml").write_text("[project]\nname = 'cut'\n", encoding="utf-8")
    chosen = {"select": ("ALL",), "ignore": tuple(OWN), "unsafe_fixes": True}
    return check_paths(files, Project(load_registry(), chosen, isolated=True), jobs=1)


def _is_across(found: Finding, source: Source, modules: Sequence[Module]) -> bool:
    """Return whether the fix of a finding edits another module than that of the finding."""
    edits = found.fix.edits if found.fix is not None else ()
    rows = (source.position(span.start).row for span in (found.span, *(e.span for e in edits)))
    homes = ({each.name for each in modules if row in each.rows} for row in rows)
    return len({name for names in homes for name in names}) > 1


def _reshaped(law: str, change: Callable[[str], Reshaped | None], path: Path) -> Iterator[Outcome]:
    """Compare a script with itself in another shape."""
    text = _read(path)
    made = change(text)
    if made is None:
        return
    before = found(text, str(path), whole=False)
    after = found(made.text, str(path), whole=False)
    shifted = {made.place(Place(*place)): fix for place, fix in after.items()}
    if law == "wrap":
        before, shifted = (
            {place: fix for place, fix in each.items() if place.code not in _ADVISING_GUARD}
            for each in (before, shifted)
        )
    yield compared(law, _short(path), law, made.kept_places(before), shifted)


_LAWS: Final[dict[str, Callable[[Path], Iterator[Outcome]]]] = {
    "beside": partial(append, donors=tuple(RUN.items()), law="beside"),
    "cut": cut_up,
    "rename": partial(_reshaped, "rename", renamed),
    "order": partial(_reshaped, "order", reordered),
    "wrap": partial(_reshaped, "wrap", wrapped),
    "step": partial(_reshaped, "step", stepped),
    "options": partial(_reshaped, "options", passed_on),
    "class": partial(_reshaped, "class", kept_on_self),
    "trainer": partial(_reshaped, "trainer", handed_over),
    "factory": partial(_reshaped, "factory", built_by_function),
    "loss": partial(_reshaped, "loss", computed_by_function),
    "config": partial(_reshaped, "config", configured),
}


# -- running ------------------------------------------------------------------------------------


def scripts(paths: Sequence[Path]) -> list[Path]:
    """Return the scripts to change: those of the fixtures, or every file of some paths."""
    if paths:
        found = [
            inner for path in paths for inner in (path.rglob("*.py") if path.is_dir() else [path])
        ]
        return sorted(found)
    patterns = ("rules/*/slow.py", "rules/*/fast.py", "scripts/*/*.py", "quiet/*.py")
    return sorted(path for pattern in patterns for path in FIXTURES.glob(pattern))


def all_donors(kind: str) -> list[tuple[str, str]]:
    """Return the hand-made donors, and with `all` the definitions of every fixture."""
    made = list(HAND.items())
    if kind == "all":
        for path in scripts(()):
            donor = donor_of(_read(path)) if path.name != "fast.py" else None
            if donor is not None:
                made.append((_label(path), donor))
    return made


def _label(path: Path) -> str:
    """Return the name of a fixture: that of its folder, or its own."""
    return path.stem if path.parent.name == "quiet" else path.parent.name


def outcomes(law: str, path: Path, kind: str, *, program: bool = False) -> list[Outcome]:
    """Return the outcomes of a law for one script."""
    if law == "append":
        return list(append(path, _donors(kind), _programs() if program else None))
    return list(_LAWS[law](path))


@cache
def _programs() -> Programs:
    return Programs()


@cache
def _donors(kind: str) -> list[tuple[str, str]]:
    return all_donors(kind)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def table(law: str, made: Iterable[Outcome]) -> list[Breach]:
    """Print what is kept and lost by rule, and return the breaches."""
    kept: Counter[str] = Counter()
    breaches: list[Breach] = []
    changes = broken = 0
    for outcome in made:
        changes += 1
        broken += bool(outcome.breaches)
        kept += outcome.kept
        breaches += outcome.breaches
    what = Counter((each.place.code, each.what) for each in breaches)
    print(
        f"\n{law}: {changes} changes, {changes - broken} without a breach "
        f"({(changes - broken) / max(changes, 1):.2%})"
    )
    print(f"{'rule':8}{'kept':>8}{'lost':>8}{'new':>8}{'fix':>8}")
    codes = {code for code, _ in what}
    for code in sorted(codes, key=lambda code: -sum(what[code, kind] for kind in _KINDS)):
        print(f"{code:8}{kept[code]:8}" + "".join(f"{what[code, kind]:8}" for kind in _KINDS))
    totals = (sum(n for (_, each), n in what.items() if each == kind) for kind in _KINDS)
    print(f"{'all':8}{kept.total():8}" + "".join(f"{total:8}" for total in totals))
    return breaches


_KINDS: Final = ("lost", "new", "fix")


def main() -> None:
    """Check the laws that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="+", help="laws, and files or folders to check them on")
    parser.add_argument("--donors", choices=("all", "hand"), default="all")
    parser.add_argument("--program", action="store_true", help="append to modules of programs")
    parser.add_argument("--quiet", action="store_true", help="print the tables alone")
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    laws = [each for each in args.what if each == "append" or each in _LAWS]
    paths = scripts([Path(each) for each in args.what if each not in laws])
    breaches = []
    with ProcessPoolExecutor(args.processes) as pool:
        for law in laws:
            made = pool.map(partial(outcomes, law, kind=args.donors, program=args.program), paths)
            breaches += table(law, (outcome for each in made for outcome in each))
    for each in () if args.quiet else breaches:
        place = f"{each.script}:{each.place.row}:{each.place.column}"
        print(f"{each.law} {each.what:5} {each.place.code} {place} [{each.change}]")
    raise SystemExit(bool(breaches))


if __name__ == "__main__":
    main()
