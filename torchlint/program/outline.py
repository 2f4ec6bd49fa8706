"""The outline of a module: what its top-level statements bind and use, and what it imports."""

from __future__ import annotations

import ast
import gc
import re
import warnings
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from itertools import chain
from typing import Final, NamedTuple

from torchlint.notebook import is_notebook
from torchlint.source import Source

_TEST: Final = re.compile(
    r"(?:^|/)(?:tests?|testing|benchmarks?|docs?)/|"
    r"(?:^|/)(?:(?:test|smoke)_[^/]*|[^/]*_(?:test|smoke)|conftest)\.\w+$"
)


class Kind(Enum):
    """What a top-level statement is."""

    FUNCTION = "function"
    CLASS = "class"
    ASSIGNMENT = "assignment"
    IMPORT = "import"
    CODE = "code"
    GUARD = "guard"
    """Code under `if __name__ == "__main__"`."""


class Import(NamedTuple):
    """One imported name.

    `name` is None for the module itself. `local` is what follows `as`, else the name as written,
    so `a.b` for `import a.b`.
    """

    level: int
    module: str
    name: str | None
    local: str

    @property
    def bound(self) -> str:
        """The name that the import binds."""
        return self.local.partition(".")[0]

    @property
    def qualified(self) -> str:
        """The qualified name that the bound name stands for, as written."""
        if self.name is None:
            return self.bound if "." in self.local else self.module
        start = "." * self.level + self.module
        return f"{start}{'' if start.endswith('.') else '.'}{self.name}"


class Star(NamedTuple):
    """A star import at the top level."""

    level: int
    module: str


class Definition(NamedTuple):
    """One top-level statement, or several that share a line.

    `first` and `last` are the rows of its lines, decorators included, and `docs` those of the
    docstrings inside. `size` counts the characters of its code. `uses` are the own and imported
    names of the module in the code, strings included, and `chains` dotted names that begin with an
    imported one. `imports` are those inside functions and classes. `trains` is whether the code
    trains, loads or loops over batches, and `handles` whether it names torch, a loader, or a method
    that tensors, networks or optimizers have. `decorated` is whether it has a decorator, which may
    register it, and `lookups` are words by which it may find names that it does not spell.
    """

    kind: Kind
    binds: tuple[str, ...]
    first: int
    last: int
    size: int
    uses: frozenset[str]
    chains: tuple[str, ...] = ()
    imports: tuple[Import, ...] = ()
    trains: bool = False
    handles: bool = False
    docs: tuple[tuple[int, int], ...] = ()
    decorated: bool = False
    lookups: frozenset[str] = frozenset()

    def code(self, text: str) -> str:
        """Return the lines of the definition with its docstrings and comments left blank."""
        return "".join(_code(text, self.first, self.docs))


class Outline(NamedTuple):
    """What one module defines, imports and uses at its top level.

    `exports` is `__all__` if it is a plain list. `starts` is whether it runs something when it is
    the main module. `trains` is whether it trains a network or loads batches, `looks_modules_up`
    whether it may find modules or classes by names that it makes up or reads, `optimizes` whether
    it runs a backward pass or a trainer, and `accelerates` whether it uses an accelerator.
    """

    definitions: tuple[Definition, ...] = ()
    imports: tuple[Import, ...] = ()
    stars: tuple[Star, ...] = ()
    exports: frozenset[str] | None = None
    starts: bool = False
    trains: bool = False
    looks_modules_up: bool = False
    optimizes: bool = False
    accelerates: bool = False


OPTIMIZING: Final = (
    ".backward(", "Trainer(", "TrainingArguments", "LightningModule", "Engine(", "LightningCLI(",
)  # fmt: skip
"""A text that trains a network contains one of these."""
MARKS: Final = (*OPTIMIZING, "DataLoader")
"""A text that trains a network or loads batches contains one of these."""
ACCELERATING: Final = (
    ".cuda(", "'cuda", '"cuda', "torch.accelerator.", "LightningModule", "Accelerator(",
    "TrainingArguments", "deepspeed.initialize(",
)  # fmt: skip
"""A text that puts tensors on an accelerator contains one of these."""
LOOKING: Final = (
    "import_module(", "__import__(", "__subclasses__", "__init_subclass__", "hydra", "runpy",
    "LightningCLI(", "pydoc",
)  # fmt: skip
"""A text that finds modules or classes by names that it makes up or reads contains one of these."""
_HANDLES: Final = re.compile(
    r"\b(?:torch|nn|F)\.|loader\b[^'\"\n]|"
    r"\.(?:item|tolist|numpy|cpu|cuda|to|detach|backward|step|zero_grad|eval|train|forward)\("
)
_STEPS: Final = re.compile(
    r"\bfor\b[^\n]*\bin\b[^\n]*(?:loader|batches)\b|"
    r"\bdef (?:train(?:ing)?|valid(?:ation)?|test|eval)_(?:step|batch|epoch|one_epoch)\b"
)
"""A loop over batches, or a function for one batch or for all."""
_LOOKUPS: Final = re.compile(
    r"(?:(?<![.\w])(?:getattr|vars|globals|locals|eval)|\bFire)(?=\()|\b(?:__dict__|sys\.modules)\b"
)
LOOKING_UP: Final = (
    "getattr(", "vars(", "globals(", "locals(", "eval(", "Fire(", "__dict__", "sys.modules",
)  # fmt: skip
"""A text in which `_LOOKUPS` finds something contains one of these."""
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_GAPS: Final = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) in "._")}
_MOST_LINKS: Final = 6
"""How many parts of a dotted name are kept."""
_INSIDE: Final = re.compile(r"(?:^[ \t]+|[:;][ \t]*)(?:from|import)\b", re.M)
"""An import that is not at the beginning of its line."""
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
FRAMES: Final = (*_FUNCTIONS, ast.ClassDef)
"""What has a scope of its own: its imports bind no name of the module."""
_Frame = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_IMPORTS: Final = (ast.Import, ast.ImportFrom)
_RUNS: Final = (ast.Expr, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Match)
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_FORKS: Final = (ast.If, ast.Try)


def outline_of(source: Source) -> Outline | None:
    """Return the outline of a file, None if it does not parse."""
    tree = _parsed(source.text)
    try:
        return _Reader(source).read(tree) if tree is not None else None
    except RecursionError:
        return None


def _parsed(text: str) -> ast.Module | None:
    """Parse a text without the garbage collector, which would visit all nodes in vain."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    finally:
        if was_enabled:
            gc.enable()


class _Lines(NamedTuple):
    """Statements that share lines, and the code of these."""

    nodes: list[ast.stmt]
    first: int
    last: int
    docs: tuple[tuple[int, int], ...]
    text: str
    size: int


class _Reader:
    """Makes the outline of one module."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.starts: list[int] = [*source.line_starts, len(source.text)]

    def read(self, tree: ast.Module) -> Outline:
        """Return the outline of a tree."""
        lines = list(self._lines(tree.body))
        bound = [
            tuple(dict.fromkeys(chain.from_iterable(map(_bound, each.nodes)))) for each in lines
        ]
        inside = [_nested(each) for each in lines]
        here = [tuple(imports_in(each.nodes, FRAMES)) for each in lines]
        imports = tuple(dict.fromkeys(_entries(chain.from_iterable(here))))
        stars = tuple(dict.fromkeys(_stars(chain.from_iterable(here))))
        imported = {entry.bound for entry in chain(imports, *inside)}
        known = imported.union(*bound)
        definitions: list[Definition] = []
        for each, binds, nested, outer in zip(lines, bound, inside, here, strict=True):
            kind = _kind(each.nodes, bool(outer))
            tokens = set(each.text.translate(_GAPS).split())
            dotted = [(token.partition(".")[0], token) for token in tokens if "." in token]
            words = tokens.union(head for head, _ in dotted)
            chains = {
                ".".join(token.split(".")[:_MOST_LINKS]).rstrip(".")
                for head, token in dotted
                if head in imported
            }
            definitions.append(
                Definition(
                    kind,
                    binds,
                    each.first,
                    each.last,
                    each.size,
                    frozenset(words if stars and kind is not Kind.IMPORT else known & words),
                    tuple(sorted(chains)),
                    nested,
                    _trains(each.text) or _STEPS.search(each.text) is not None,
                    _HANDLES.search(each.text) is not None,
                    each.docs,
                    any(getattr(node, "decorator_list", ()) for node in each.nodes),
                    _lookups(each.text),
                )
            )
        return Outline(
            tuple(definitions),
            imports,
            stars,
            _exports(tree),
            any(map(_starts, tree.body)),
            _trains(self.source.text),
            any(mark in self.source.text for mark in LOOKING),
            any(mark in self.source.text for mark in OPTIMIZING),
            any(mark in self.source.text for mark in ACCELERATING),
        )

    def _lines(self, body: list[ast.stmt]) -> Iterator[_Lines]:
        """Yield the statements, grouped where they share a line; no plain strings, no `__all__`."""
        group: list[ast.stmt] = []
        first = last = 0
        for node in body:
            if _is_text(node) or _is_list_of_names(node):
                continue
            begin = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            if group and begin > last and not self._text(last, last).rstrip().endswith("\\"):
                yield self._together(group, first, last)
                group = []
            if not group:
                first = begin
            group.append(node)
            last = node.end_lineno or begin
        if group:
            yield self._together(group, first, last)

    def _together(self, nodes: list[ast.stmt], first: int, last: int) -> _Lines:
        docs = tuple(_docstrings(nodes))
        code = _code(self._text(first, last), first, docs)
        size = sum(len(line) for line in code if not line.isspace())
        return _Lines(nodes, first, last, docs, "".join(code), size)

    def _text(self, first: int, last: int) -> str:
        return self.source.text[self.starts[first - 1] : self.starts[last]]


def _trains(text: str) -> bool:
    return any(mark in text for mark in MARKS)


def _lookups(text: str) -> frozenset[str]:
    """Return the words in a text by which it may find names that it does not spell."""
    may = any(word in text for word in LOOKING_UP)
    return frozenset(_LOOKUPS.findall(text)) if may else frozenset()


def _code(text: str, first: int, docs: Iterable[tuple[int, int]]) -> list[str]:
    """Return lines, of which the first has row `first`, with docstrings and comments left blank."""
    lines: list[str] = _LINE.findall(text)
    for begin, end in docs:
        for number in range(max(begin - first, 0), min(end - first + 1, len(lines))):
            lines[number] = _blank(lines[number])
    if "#" in text:
        lines = [_blank(each) if each.lstrip().startswith("#") else each for each in lines]
    return lines


def _blank(line: str) -> str:
    """Return the end of a line."""
    return line[len(line.rstrip("\r\n")) :]


def _docstrings(nodes: list[ast.stmt]) -> Iterator[tuple[int, int]]:
    """Yield the rows of docstrings that have lines of their own, with code behind them."""
    for node in _frames(nodes):
        if len(node.body) > 1 and _is_text(node.body[0]):
            text, following = node.body[:2]
            end = text.end_lineno or text.lineno
            if node.lineno < text.lineno and end < following.lineno:
                yield text.lineno, end


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_list_of_names(node: ast.AST) -> bool:
    """Return whether a statement is an assignment to `__all__`."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    return any(isinstance(each, ast.Name) and each.id == "__all__" for each in targets)


def _is_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(node.test)
    )


def _starts(node: ast.stmt) -> bool:
    """Return whether a top-level statement runs something."""
    if isinstance(node, ast.If):
        return _is_guard(node) or _runs_imported(node)
    return isinstance(node, _RUNS) and not _is_text(node)


def _kind(nodes: list[ast.stmt], imports: bool) -> Kind:
    """Return the kind of the statements on one line."""
    if any(map(_is_guard, nodes)):
        return Kind.GUARD
    if any(isinstance(node, _RUNS) and not _is_text(node) for node in nodes):
        return Kind.CODE
    if any(isinstance(node, ast.ClassDef) for node in nodes):
        return Kind.CLASS
    if any(isinstance(node, _FUNCTIONS) for node in nodes):
        return Kind.FUNCTION
    forks = [node for node in nodes if isinstance(node, _FORKS)]
    if any(_runs_imported(each) for each in forks if isinstance(each, ast.If)):
        return Kind.CODE
    if imports:
        return Kind.IMPORT
    if any(isinstance(each, _RUNS) and not _is_text(each) for each in _statements(forks)):
        return Kind.CODE
    return Kind.ASSIGNMENT


def _runs_imported(fork: ast.If) -> bool:
    """Return whether a choice uses what it imports or makes: `if a: from lib import run; run()`."""
    bound = set(_bound(fork))
    return any(
        isinstance(each, _LOOPS) or not bound.isdisjoint(_called(each))
        for each in _statements([fork])
    )


def _called(line: ast.AST) -> Iterator[str]:
    """Yield the name of which a line calls something: `net` in `net.fit()` and `x = net()`."""
    called = line.value if isinstance(line, ast.Expr | ast.Assign) else None
    while isinstance(called, ast.Call | ast.Attribute):
        called = called.func if isinstance(called, ast.Call) else called.value
    if isinstance(called, ast.Name) and isinstance(getattr(line, "value", None), ast.Call):
        yield called.id


def _statements(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the statements inside some, those of functions and classes left out."""
    blocks = list(nodes)
    while blocks:
        block = blocks.pop()
        for inner in _blocks(block):
            for node in inner:
                yield node
                if not isinstance(node, FRAMES):
                    blocks.append(node)


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement binds at the top level."""
    if isinstance(node, FRAMES):
        yield node.name
    elif isinstance(node, _IMPORTS):
        names = (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        yield from (name for name in names if name != "*")
    elif isinstance(node, ast.Assign):
        yield from chain.from_iterable(map(_stored, node.targets))
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.AsyncFor):
        yield from _stored(node.target)
    elif isinstance(node, ast.With | ast.AsyncWith):
        targets = (item.optional_vars for item in node.items)
        yield from chain.from_iterable(_stored(each) for each in targets if each is not None)
    elif isinstance(node, ast.ExceptHandler) and node.name is not None:
        yield node.name
    if not isinstance(node, FRAMES):
        for block in _blocks(node):
            yield from chain.from_iterable(map(_bound, block))


def _stored(target: ast.expr) -> Iterator[str]:
    """Yield the names in the target of an assignment."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        yield from chain.from_iterable(map(_stored, target.elts))
    elif isinstance(target, ast.Starred):
        yield from _stored(target.value)


def imports_in(
    nodes: Iterable[ast.AST], outside: tuple[type[ast.AST], ...] = ()
) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports in statements, in source order, not those in nodes of types `outside`."""
    for node in nodes:
        if isinstance(node, _IMPORTS):
            yield node
        elif not isinstance(node, outside):
            for block in _blocks(node):
                yield from imports_in(block, outside)


def _nested(lines: _Lines) -> tuple[Import, ...]:
    """Return the imports inside the functions and classes of statements."""
    if "import" not in lines.text or _INSIDE.search(lines.text) is None:
        return ()
    found = chain.from_iterable(imports_in(frame.body, FRAMES) for frame in _frames(lines.nodes))
    return tuple(dict.fromkeys(_entries(found)))


def _frames(nodes: Iterable[ast.AST]) -> Iterator[_Frame]:
    """Yield the functions and classes in statements, in source order."""
    for node in nodes:
        if isinstance(node, FRAMES):
            yield node
        for block in _blocks(node):
            yield from _frames(block)


def _blocks(node: ast.AST) -> Iterator[list[ast.AST]]:
    """Yield the lists of statements, of handlers and of cases that a statement holds."""
    return (getattr(node, name) for name in _BLOCKS if name in node._fields)


def _entries(nodes: Iterable[ast.Import | ast.ImportFrom]) -> Iterator[Import]:
    for node in nodes:
        for alias in node.names:
            if isinstance(node, ast.Import):
                yield Import(0, alias.name, None, alias.asname or alias.name)
            elif alias.name != "*":
                yield Import(node.level, node.module or "", alias.name, alias.asname or alias.name)


def _stars(nodes: Iterable[ast.Import | ast.ImportFrom]) -> Iterator[Star]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            yield Star(node.level, node.module or "")


def _exports(tree: ast.Module) -> frozenset[str] | None:
    """Return the names in `__all__`, None if it is missing or computed."""
    found: set[str] = set()
    is_known = False
    for node in tree.body:
        if not _is_list_of_names(node):
            continue
        value = getattr(node, "value", None)
        if not isinstance(value, ast.List | ast.Tuple):
            return None
        for item in value.elts:
            if not (isinstance(item, ast.Constant) and isinstance(item.value, str)):
                return None
            found.add(item.value)
        is_known = True
    return frozenset(found) if is_known else None


@cache
def is_test(path: str) -> bool:
    """Return whether a path is that of a test, a benchmark or documentation."""
    return _TEST.search(path) is not None


def is_main(path: str) -> bool:
    """Return whether a module is run as the main module, by its name."""
    return is_notebook(path) or path.endswith("__main__.py")
