"""Verifying the text that fixes produce, before it is kept."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from torchlint.edit import Edit
from torchlint.engine.parsing import UnparsableError, compile_problem, syntax_problem, syntax_tree
from torchlint.program.outline import FRAMES, imports_in
from torchlint.source import Source, SourceError
from torchlint.suppress import Comment, comments_of, is_suppression

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_BINDING: Final[dict[type[ast.AST], str]] = {
    ast.arg: "arg",
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.ExceptHandler: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
    ast.MatchMapping: "rest",
}
"""The fields of nodes that bind a name, apart from `Name` nodes in a store context."""
_BUILTINS: Final = frozenset(dir(builtins))


def fix_problem(before: Source, after: Source, edits: Iterable[Edit]) -> str | None:
    """Return what is wrong with `after`, made from `before` by `edits`; None if nothing is.

    The text must survive encoding and decoding, compile if it did before, parse with LibCST, bind
    every name it reads as before, and keep every comment. Only a suppression may go, by an edit
    that removes nothing but its comment.
    """
    return (
        _unwritable(after)
        or _uncompilable(before, after)
        or _newly_unbound(before, after)
        or _lost_comment(before, after, edits)
    )


def _unwritable(after: Source) -> str | None:
    try:
        again = type(after).from_bytes(after.to_bytes(), after.path)
    except SourceError as error:
        return f"cannot be written: {error.message}"
    if again != after:
        return "cannot be written: it would be read in another encoding"
    return None


def _uncompilable(before: Source, after: Source) -> str | None:
    problem = compile_problem(after)
    if problem is not None and compile_problem(before) is not None:
        problem = syntax_problem(after)
    if problem is not None:
        return f"does not compile: {problem.reason}"
    return _unreadable(after)


def _newly_unbound(before: Source, after: Source) -> str | None:
    try:
        return newly_unbound(before, after)
    except UnparsableError:  # the text did not parse before
        return None


def _unreadable(after: Source) -> str | None:
    """Return why LibCST cannot parse a text that CPython can, None if it can."""
    from libcst import ParserSyntaxError

    from torchlint.semantic.syntax import read

    try:
        read(after)
    except ParserSyntaxError as error:
        return f"cannot be read by LibCST: {error.message}"
    except RecursionError:
        return "is nested too deeply"
    return None


def _lost_comment(before: Source, after: Source, edits: Iterable[Edit]) -> str | None:
    if "#" not in before.text:
        return None
    comments = list(comments_of(before))
    owed = Counter(comment.text for comment in comments)
    owed -= Counter(comment.text for comment in _given_up(before, comments, edits))
    owed -= Counter(comment.text for comment in comments_of(after))
    if owed:
        return f"loses the comment `{next(iter(owed))}`"
    return None


def _given_up(before: Source, comments: list[Comment], edits: Iterable[Edit]) -> Iterator[Comment]:
    """Yield the suppression comments that an edit replaces without any code."""
    edits = [edit for edit in edits if edit.span.start < edit.span.end]
    for comment in comments:
        if is_suppression(comment.text) and any(_is_about(edit, comment, before) for edit in edits):
            yield comment


def _is_about(edit: Edit, comment: Comment, before: Source) -> bool:
    replaced = before.text[edit.span.start : edit.span.end]
    start = edit.span.start + len(replaced) - len(replaced.lstrip())
    end = edit.span.end - len(replaced) + len(replaced.rstrip())
    return comment.span.start <= start < end <= comment.span.end


def newly_unbound(before: Source, after: Source) -> str | None:
    """Return what is wrong if `after` reads an unbound name that was bound in `before`, or None.

    Raises `UnparsableError` if one of the two does not parse.
    """
    old, new = syntax_tree(before), syntax_tree(after)
    had, has = _Words(old), _Words(new)
    if not has.is_open:
        unresolved = {name for _, name in _unresolved(after) - _unresolved(before)}
        lost = min(unresolved & had.bound, default=None)
        if lost is not None:
            what = "its import" if lost in had.imported else "what binds it"
            return f"leaves `{lost}` in use and takes {what} out"
    early = min((_free_at_top(new) - _free_at_top(old)) & has.bound, default=None)
    return f"reads `{early}` above what binds it" if early is not None else None


def _unresolved(source: Source) -> frozenset[tuple[tuple[str, ...], str]]:
    """Return the names that no scope around their reads binds, each with the path of its scope."""
    try:
        top = symtable.symtable(source.text, source.path, "exec")
    except SyntaxError:  # it parses, but does not compile
        return frozenset()
    bound = set(_BUILTINS)
    reads: set[tuple[tuple[str, ...], str]] = set()
    pending: list[tuple[tuple[str, ...], symtable.SymbolTable]] = [((), top)]
    while pending:
        path, table = pending.pop()
        pending += (((*path, each.get_name()), each) for each in table.get_children())
        for symbol in table.get_symbols():
            is_global = table is top or symbol.is_global()
            if is_global and (symbol.is_assigned() or symbol.is_imported()):
                bound.add(symbol.get_name())
            if is_global and symbol.is_referenced():
                reads.add((path, symbol.get_name()))
    return frozenset((path, name) for path, name in reads if name not in bound)


class _Words:
    """The names that a text reads, and the names that it binds anywhere."""

    def __init__(self, *roots: ast.AST) -> None:
        self.read: set[str] = set()
        self.bound: set[str] = set()
        self.imported: set[str] = set()
        for node in chain.from_iterable(map(ast.walk, roots)):
            if isinstance(node, ast.Name):
                (self.read if isinstance(node.ctx, ast.Load) else self.bound).add(node.id)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self.imported.update(map(bound_by, node.names))
            elif type(node) in _BINDING:
                self.bound.add(getattr(node, _BINDING[type(node)]) or "")
        self.bound |= self.imported
        self.is_open = "*" in self.imported
        """Whether there is a star import, which may bind any name."""


def _free_at_top(tree: ast.Module) -> frozenset[str]:
    """Return the names that module-level code reads before anything can have bound them.

    The body of a function counts where module-level code first calls it.
    """
    order = _Order()
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            order.bound.update(node.names)
    order.visit_all(tree.body)
    return frozenset(order.free)


class _Order(ast.NodeVisitor):
    """A visitor of module-level code in the order in which it runs."""

    def __init__(self) -> None:
        self.bound = set(_BUILTINS)
        self.free: set[str] = set()
        self.functions: dict[str, _Function] = {}
        self.in_class = False

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        """Visit nodes one after the other."""
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Bind the name, or record it if it is read unbound."""
        if isinstance(node.ctx, ast.Load):
            self._read(node.id)
        elif isinstance(node.ctx, ast.Store):
            self._bind(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Visit the value before its targets."""
        self.visit_all([node.value, *node.targets])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Visit the value but not the annotation."""
        if node.value is not None:
            self.visit_all([node.value, node.target])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Read the target before binding it."""
        if isinstance(node.target, ast.Name):
            self._read(node.target.id)
        self.visit_all([node.value, node.target])

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        """Visit the value before its target."""
        self.visit_all([node.value, node.target])

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        """Visit the iterable before the target."""
        self.visit_all([node.iter, node.target, *node.body, *node.orelse])

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        """Bind the name of the exception in its handler."""
        self.visit_all([node.type])
        self._bind(node.name)
        self.visit_all(node.body)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        """Bind the names that the pattern captures."""
        self.generic_visit(node)
        self._bind(node.name)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        """Bind the names that the pattern captures."""
        self._bind(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        """Bind the names that the pattern captures."""
        self.generic_visit(node)
        self._bind(node.rest)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Bind the imported names."""
        for alias in node.names:
            self._bind(bound_by(alias))

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_FunctionDef(self, node: _Function) -> None:
        """Visit decorators and defaults of a function, and bind its name."""
        self.visit_all([*node.decorator_list, *node.args.defaults, *node.args.kw_defaults])
        if not self.in_class:
            self.functions[node.name] = node
        self._bind(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Visit the defaults of a lambda."""
        self.visit_all([*node.args.defaults, *node.args.kw_defaults])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Visit the body of a class in a scope of its own."""
        self.visit_all([*node.decorator_list, *node.bases, *node.keywords])
        outer, inside = set(self.bound), self.in_class
        self.in_class = True
        self.visit_all(node.body)
        self.bound, self.in_class = outer, inside
        self._bind(node.name)

    def visit_ListComp(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        """Visit a comprehension, whose targets have a scope of their own."""
        outer = set(self.bound)
        for each in node.generators:
            self.visit_all([each.iter, each.target, *each.ifs])
        made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self.visit_all(made)
        self.bound = outer

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp  # noqa: N815

    def visit_Call(self, node: ast.Call) -> None:
        """Visit the body of a function of this file at its first call."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name):
            self._run(node.func.id)

    def _run(self, name: str) -> None:
        """Read the globals that a function uses, including those of functions that it calls."""
        function = self.functions.pop(name, None)
        if function is None:
            return
        inside = _Words(*function.body)
        own = inside.bound | _Words(function.args).bound
        for word in sorted(inside.read - own):
            self._read(word)
            self._run(word)

    def _read(self, name: str) -> None:
        if name not in self.bound and "*" not in self.bound:
            self.free.add(name)

    def _bind(self, name: str | None) -> None:
        if name:
            self.bound.add(name)


def importable(tree: ast.Module) -> dict[str, set[str]]:
    """Return the names that a module binds by imports, and what it imports under each.

    Imports inside functions and classes do not count: other modules cannot import their names.
    """
    found: dict[str, set[str]] = {}
    for node in imports_in(tree.body, FRAMES):
        for alias in node.names:
            word = bound_by(alias)
            meaning = alias.name if alias.asname else word
            if isinstance(node, ast.ImportFrom):
                meaning = f"{'.' * node.level}{node.module or ''}.{alias.name}"
            found.setdefault(word, set()).add(meaning)
    return found


def bound_by(alias: ast.alias) -> str:
    """Return the name that an import binds."""
    return alias.asname or alias.name.partition(".")[0]
