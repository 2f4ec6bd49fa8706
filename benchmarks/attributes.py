"""Write a script that runs the same with its training in a class: what it needs, in attributes."""

from __future__ import annotations

import ast
from typing import Final, NamedTuple, cast

import libcst as cst
from reshaping import Reshaped
from restructuring import Rows, can_move, has_long_text, joined, parsed, step_of, trains

__all__ = ["handed_over", "kept_on_self", "parts_of"]

_INDENT: Final = " " * 4
_NOTHING: Final = ast.arguments(
    posonlyargs=[], args=[], vararg=None, kwonlyargs=[], kw_defaults=[], kwarg=None, defaults=[]
)


class Parts(NamedTuple):
    """A main function in two parts, and the names that the second takes from the first."""

    main: ast.FunctionDef
    setup: list[ast.stmt]
    rest: list[ast.stmt]
    shared: list[str]
    split: int
    """The row at which the second part begins, with the comments above it."""

    @property
    def last(self) -> int:
        """The last row of the function."""
        return self.main.end_lineno or self.main.lineno


def kept_on_self(text: str) -> Reshaped | None:
    """Make what `main` sets up in a class, whose method trains with its attributes."""
    parts = parts_of(text)
    if parts is None:
        return None
    lines = _on_self(text, parts).splitlines(keepends=True)
    rows = range(parts.setup[0].lineno, parts.last + 1)
    instead = {row: [(_deeper(lines[row - 1]), row)] for row in rows}
    instead[parts.main.lineno] = [("class Trainer:\n", 0), (f"{_INDENT}def __init__(self):\n", 0)]
    instead[parts.last] += [("\n", 0), *_main("Trainer().train()")]
    before = {parts.split: [("\n", 0), (f"{_INDENT}def train(self):\n", 0)]}
    return joined(lines, before, instead)


def handed_over(text: str) -> Reshaped | None:
    """Hand what `main` sets up to a class, whose method of a step the loop calls."""
    parts = parts_of(text)
    if parts is None:
        return None
    lines, on_self = text.splitlines(keepends=True), _on_self(text, parts).splitlines(keepends=True)
    given = ", ".join(parts.shared)
    made = [
        ("class Trainer:\n", 0),
        (f"{_INDENT}def __init__(self, {given}):\n", 0),
        *((f"{_INDENT}{_INDENT}self.{name} = {name}\n", 0) for name in parts.shared),
        ("\n", 0),
        (f"{_INDENT}def train(self):\n", 0),
        *((_deeper(on_self[row - 1]), row) for row in range(parts.split, parts.last + 1)),
        ("\n", 0),
    ]
    instead: Rows = {row: [] for row in range(parts.split, parts.last + 1)}
    instead[parts.last] = [(f"{_INDENT}return Trainer({given}).train()\n", 0)]
    whole = joined(lines, {parts.main.lineno: made}, instead)
    return _with_step(whole) if whole is not None else None


def _with_step(made: Reshaped) -> Reshaped:
    """Move the body of the loop that goes backward into a method, where that can be done."""
    tree, lines = parsed(made.text)
    train = next(
        (
            line
            for owner in (tree.body if tree is not None else [])
            if isinstance(owner, ast.ClassDef) and owner.name == "Trainer"
            for line in owner.body
            if isinstance(line, ast.FunctionDef) and line.name == "train"
        ),
        None,
    )
    loops = [
        node
        for node in ast.walk(train or ast.Module([], []))
        if isinstance(node, ast.For) and can_move(node) and not has_long_text(node)
    ]
    if tree is None or train is None or len(loops) != 1:
        return made
    step = step_of(tree, train, train, loops[0])
    first, indent = loops[0].body[0].lineno, loops[0].body[0].col_offset
    rows = range(first, (loops[0].end_lineno or first) + 1)
    taken = [name for name in step.taken if name != "self"]
    given = ", ".join(step.given)
    body = [(f"{_INDENT}def step({', '.join(['self', *taken])}):\n", 0)]
    body += [(f"{_INDENT}{_INDENT}{lines[row - 1][indent:]}", row) for row in rows]
    body += [(f"{_INDENT}{_INDENT}return {given}\n", 0)] if given else []
    instead: Rows = {row: [] for row in rows}
    held = f"{given} = " if given else ""
    instead[first] = [(f"{' ' * indent}{held}self.step({', '.join(taken)})\n", 0)]
    moved = joined(lines, {train.lineno: [*body, ("\n", 0)]}, instead)
    if moved is None:
        return made
    rows_before = tuple(made.rows[row - 1] if row else 0 for row in moved.rows)
    return Reshaped(moved.text, rows_before, has_columns=False)


def parts_of(text: str) -> Parts | None:
    """Return the parts of a `main` without parameters, before and from the loop that trains."""
    tree, lines = parsed(text)
    mains = [
        line
        for line in (tree.body if tree is not None else [])
        if isinstance(line, ast.FunctionDef) and line.name == "main"
    ]
    if tree is None or len(mains) != 1 or mains[0].decorator_list or "Trainer" in text:
        return None
    main = mains[0]
    if ast.dump(main.args) != ast.dump(_NOTHING) or has_long_text(main) or _has_own_scope(main):
        return None
    training = trains(tree)
    start = next((n for n, line in enumerate(main.body) if _is_training(line, training)), 0)
    setup, rest = main.body[:start], main.body[start:]
    shared = _names(setup, ast.Store) & _names(rest)
    if not shared or shared & _hidden(main):
        return None
    split = rest[0].lineno
    while lines[split - 2].strip().startswith("#"):
        split -= 1
    return Parts(main, setup, rest, sorted(shared), split)


def _is_training(line: ast.stmt, training: set[str]) -> bool:
    if not isinstance(line, (ast.For, ast.While, ast.With)):
        return False
    words = {node.id for node in ast.walk(line) if isinstance(node, ast.Name)}
    methods = {node.attr for node in ast.walk(line) if isinstance(node, ast.Attribute)}
    return "backward" in methods or bool(words & training)


def _has_own_scope(main: ast.FunctionDef) -> bool:
    """Return whether a function has what depends on its own scope."""
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal)
    nodes = [node for line in main.body for node in ast.walk(line)]
    return any(isinstance(node, (*scopes, ast.Delete, ast.NamedExpr)) for node in nodes)


def _hidden(main: ast.FunctionDef) -> set[str]:
    """Return the names that comprehensions and parameters bind, and those of imports."""
    found: set[str] = set()
    for node in ast.walk(main):
        if isinstance(node, ast.comprehension):
            found |= {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return found


def _names(lines: list[ast.stmt], kind: type[ast.expr_context] = ast.expr_context) -> set[str]:
    return {
        node.id
        for line in lines
        for node in ast.walk(line)
        if isinstance(node, ast.Name) and isinstance(node.ctx, kind)
    }


def _deeper(line: str) -> str:
    return f"{_INDENT}{line}" if line.strip() else line


def _main(call: str) -> list[tuple[str, int]]:
    return [("def main():\n", 0), (f"{_INDENT}return {call}\n", 0)]


def _on_self(text: str, parts: Parts) -> str:
    """Return a text whose main function has attributes instead of the shared names."""
    tree = cst.parse_module(text)
    place = next(
        n
        for n, line in enumerate(tree.body)
        if isinstance(line, cst.FunctionDef) and line.name.value == "main"
    )
    main = tree.body[place].visit(_Attributes(frozenset(parts.shared)))
    body = [*tree.body[:place], cast("cst.FunctionDef", main), *tree.body[place + 1 :]]
    return tree.with_changes(body=body).code


class _Attributes(cst.CSTTransformer):
    """Replace names by attributes of `self`."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__()
        self._names = names

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        """Replace one of the names."""
        if original_node.value not in self._names:
            return updated_node
        name = cst.Name(original_node.value)
        return cst.Attribute(
            cst.Name("self"), name, lpar=original_node.lpar, rpar=original_node.rpar
        )

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """Keep the name of an attribute."""
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        """Keep the name of a parameter."""
        return updated_node.with_changes(keyword=original_node.keyword)
