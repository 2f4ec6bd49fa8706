"""What must hold of input that nobody meant well, as functions of its bytes.

The tests call them with texts that hypothesis makes, `python -m fuzz` with what a fuzzer
finds by watching which code they reach. Each leaves an `AssertionError`, or whatever went wrong.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

import libcst as cst
from circles import CIRCLES, MAKERS, circular
from layouts import LAYOUTS
from places import PLACES
from rewired import rewired

from torchlint.audit import audit
from torchlint.config import ConfigError, Settings
from torchlint.config.values import parse
from torchlint.engine import (
    FileResult,
    FixResult,
    Project,
    check_bytes,
    check_paths,
    fix_bytes,
)
from torchlint.engine.ignorecomments import annotate
from torchlint.engine.parsing import compile_problem, syntax_problem
from torchlint.finding import Safety
from torchlint.notebook import read_source
from torchlint.program.folder import IgnoreFile
from torchlint.program.index import Index
from torchlint.registry import Registry, load_registry
from torchlint.report.baseline import Baseline, BaselineError
from torchlint.report.card import brief_card
from torchlint.report.entry import Entry
from torchlint.report.formats import render
from torchlint.report.measured import MeasuredError, read_measured
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.report.settings import settings_in_force
from torchlint.source import Source, SourceError
from torchlint.testing import examples_of

__all__ = ["SCRIPT", "TARGETS"]

SCRIPT: Final = """\
import torch

torch.autograd.set_detect_anomaly(True)
model = torch.nn.Linear(2, 2).cuda()
optimizer = torch.optim.Adam(model.parameters())
for x in torch.utils.data.DataLoader(range(9)):
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
_UNFIT: Final = (SyntaxError, ValueError, cst.ParserSyntaxError, cst.CSTValidationError)
"""How a change of a text fails that the text does not allow."""
_TOO_DEEP: Final = "is nested too deeply for"
_FORMS: Final = ("full", "concise", "json", "sarif", "github", "gitlab", "junit")


@cache
def _registry() -> Registry:
    return load_registry()


@cache
def _project() -> Project:
    return Project(_registry(), {"select": ("ALL",), "unsafe_fixes": True}, isolated=True)


@cache
def _examples() -> tuple[str, ...]:
    """Everything that a rule has something to say about in its examples, and Python can read."""
    texts = (
        example.before
        for head in _registry().select(Settings(select=("ALL",)))
        for example in examples_of(head.load())
        if not example.valid
    )
    return tuple(text for text in texts if syntax_problem(Source("x.py", text)) is None)


def source(data: bytes) -> None:
    """Check and fix a script: no failure, nothing harmed, and nothing left to fix again."""
    _file(data, "fuzzed.py")


def circle(data: bytes) -> None:
    """Do the same with a script in which something is made of itself, and audit it."""
    chance = Random(data)
    while True:
        makers = tuple(chance.choices(MAKERS, k=chance.randint(1, 3)))
        text = circular(chance.choice(list(CIRCLES)), makers, inside=chance.random() < 0.6)
        if text is not None:
            break
    _audited(text)
    _file(text.encode(), "fuzzed.py")


def rewiring(data: bytes) -> None:
    """Do the same with an example of a rule in which values are made of each other."""
    chance = Random(data)
    text = rewired(chance.choice(_examples()), chance)
    _audited(text)
    _file(text.encode(), "fuzzed.py")


def place(data: bytes) -> None:
    """Fix an example of a rule between other code, before or behind it and laid out otherwise."""
    chance = Random(data)
    text, changes = chance.choice(_examples()), {**LAYOUTS, **PLACES}
    for name in chance.choices(list(changes), k=chance.randint(1, 3)):
        with contextlib.suppress(*_UNFIT):
            changed = changes[name](text)
            compile(changed, "fuzzed.py", "exec", dont_inherit=True)
            text = changed
    _file(text.encode(), "fuzzed.py")


def notebook(data: bytes) -> None:
    """Do the same with a notebook, whose bytes come back as they were."""
    try:
        assert read_source(data, "fuzzed.ipynb").to_bytes() == data
    except SourceError as error:
        _is_line(error.message)
    _file(data, "fuzzed.ipynb")


def suppressions(data: bytes) -> None:
    """Put a text behind a finding and into a line of its own, and silence the finding there."""
    words = data.decode("utf-8", "replace")
    for text in (
        SCRIPT.replace("(True)", f"(True)  {words}"),
        SCRIPT.replace("model = ", f"{words}\nmodel = "),
    ):
        _file(text.encode("utf-8", "replace"), "fuzzed.py")
        found = _checked(text.encode("utf-8", "replace"), "fuzzed.py")
        if found.source is not None and found.findings[:1] and found.findings[0].code != "TL001":
            annotated = annotate(found.source, found.findings, _registry().known)
            after = _checked(annotated.source.to_bytes(), "fuzzed.py")
            left = {each.code for each in after.findings} - {"TL002"}
            assert left <= {each.code for each in annotated.refused}


def configuration(data: bytes) -> None:
    """Read a configuration: settings that work, or one line that names the file."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("torchlint.toml", "pyproject.toml"):
            file = Path(folder, name)
            file.write_bytes(data)
            _configured(file)
            file.unlink()


def gitignore(data: bytes) -> None:
    """Read a `.gitignore` whose text is also the path that its lines are asked about."""
    text = data.decode("utf-8", "surrogateescape")
    ignored = IgnoreFile(text)
    for path in ("a", "a/b.py", text, text.replace("*", "a")):
        ignored.leaves_out(path, False)
        ignored.leaves_out(path, True)


def baseline(data: bytes) -> None:
    """Read a baseline: one that comes back as it was, or one line that names the file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "baseline.json")
        file.write_bytes(data)
        try:
            known = Baseline.read(file)
        except BaselineError as error:
            _is_line(str(error), file)
            return
        file.write_bytes(known.to_bytes())
        assert Baseline.read(file).counts == known.counts
        entries = _entries(_checked(SCRIPT.encode(), "fuzzed.py"))
        assert len(known.unknown(entries)) <= len(entries)
        known.gone(entries, lambda identity: True)


def measured(data: bytes) -> None:
    """Read what `verify --json` is said to have written, and rank findings by it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        file.write_bytes(data)
        try:
            report = read_measured(file)
        except MeasuredError as error:
            _is_line(str(error), file)
            return
        entries = report.ranked(_entries(_checked(SCRIPT.encode(), "fuzzed.py")))
        _rendered(entries)


def cached(data: bytes) -> None:
    """Check a file beside a cache that somebody made up: it says nothing that cannot be shown.

    The text takes the place of the whole cache, and of what it has of the file.
    """
    with tempfile.TemporaryDirectory() as folder:
        script, cache = Path(folder, "fuzzed.py"), Path(folder, "cache")
        script.write_text(SCRIPT)
        list(check_paths([script], _project(), jobs=1, cache_dir=cache))
        files = {file: json.loads(file.read_bytes()) for file in cache.glob("*.json")}
        assert files
        for file, entries in files.items():
            for made_up in (data, *_entries_of(data, entries)):
                file.write_bytes(made_up)
                (result,) = check_paths([script], _project(), jobs=1, cache_dir=cache)
                assert result.is_whole
                _rendered(_entries(result))


def _entries_of(data: bytes, entries: Mapping[str, object]) -> Iterator[bytes]:
    """Yield a cache that has the text, where it is JSON, under every key."""
    with contextlib.suppress(ValueError, RecursionError):
        yield json.dumps(dict.fromkeys(entries, json.loads(data))).encode()


def _file(data: bytes, path: str) -> None:
    found = _checked(data, path)
    _rendered(_entries(found))
    fixed = _fixed(data, path)
    if not fixed.changed:
        return
    assert compile_problem(fixed.before) is not None or compile_problem(fixed.after) is None
    assert not _fixed(fixed.after.to_bytes(), path).changed


def _checked(data: bytes, path: str) -> FileResult:
    project = _project()
    result = check_bytes(data, path, project.selection(Path(path)), project.settings(Path(path)))
    assert not result.errors
    _fine(result.warnings)
    return result


def _audited(text: str) -> None:
    assert audit(Source("fuzzed.py", text), _registry(), Settings()).warnings == (), text


def _fixed(data: bytes, path: str) -> FixResult:
    project = _project()
    result = fix_bytes(data, path, project.selection(Path(path)), project.settings(Path(path)))
    assert not result.errors
    _fine(result.warnings)
    return result


def _fine(warnings: tuple[str, ...]) -> None:
    assert all(_TOO_DEEP in said for said in warnings), warnings


def _entries(result: FileResult) -> list[Entry]:
    if result.source is None:
        return []
    heads = {each.code: _registry().find(each.code) for each in result.findings}
    cards = {code: brief_card(head) for code, head in heads.items()}
    source: Source = result.source
    return [
        Entry(source.path, source, each, cards[each.code], Safety.CLOSE) for each in result.findings
    ]


def _rendered(entries: list[Entry]) -> None:
    report = Report(tuple(entries), 1)
    for name in _FORMS:
        render(report, Paint(), name=name, statistics=False)


def _configured(file: Path) -> None:
    try:
        project = Project(_registry(), {})
        rules, settings = project.selection(file), project.settings(file)
    except ConfigError as error:
        _is_line(error.message, file)
        return
    shown = parse(settings_in_force(settings, Paint()), file)
    assert shown["exclude"] == list(settings.exclude)
    assert check_bytes(SCRIPT.encode(), str(file.parent / "x.py"), rules, settings).is_whole


def _is_line(message: str, file: Path | None = None) -> None:
    assert message.strip()
    assert file is None or str(file) in message, message


def outlines(data: bytes) -> None:
    """Read kept outlines: sound ones, or none, so that the files are read again."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a.py", "b.py"):
            Path(folder, name).write_text(f"import a, b\n{SCRIPT}", encoding="utf-8")
        index = Index(folder)
        index.build()
        form, kept = json.loads(index.dump())
        try:
            kept["a.py"][2:] = [json.loads(data)]
        except (ValueError, RecursionError):
            kept["a.py"][2] = data.decode("utf-8", "replace")
        for text in (json.dumps([form, kept]).encode(), data):
            other = Index(folder)
            other.load(text)
            for name in ("a.py", "b.py"):
                excerpts = [
                    excerpt
                    for module in other.view(Path(folder, name)).modules
                    for excerpt in module.excerpts
                ]
                assert all(excerpt.row > 0 for excerpt in excerpts)
            other.build()
            assert other.missing() == []


TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "source": source,
    "circle": circle,
    "rewiring": rewiring,
    "place": place,
    "notebook": notebook,
    "suppressions": suppressions,
    "configuration": configuration,
    "gitignore": gitignore,
    "baseline": baseline,
    "measured": measured,
    "cache": cached,
    "outlines": outlines,
}
