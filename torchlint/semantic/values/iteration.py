"""Iteration: what a loop iterates over, inside enumerate, tqdm, zip, islice, iter etc."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.scope.limits import ASSIGNED
from torchlint.semantic.scope.names import Names
from torchlint.semantic.scope.scopes import How, Scopes
from torchlint.semantic.syntax.methods import method_of, word_of

COUNTER: Final = -1
"""The path of a counter: the first target of `enumerate`, the target of `range`."""

Path = tuple[int, ...]

_FIRST: Final = frozenset({
    "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "tqdm.autonotebook.tqdm", "tqdm.std.tqdm",
    "tqdm.tqdm_notebook", "tqdm.rich.tqdm", "rich.progress.track", "alive_progress.alive_it",
    "itertools.islice", "itertools.cycle", "builtins.iter", "builtins.reversed", "builtins.next",
    "progressbar.progressbar", "fastprogress.progress_bar", "tqdm.asyncio.tqdm",
})  # fmt: skip
_FIRST_BY_NAME: Final = frozenset(
    "tqdm log_every track progress_bar data_prefetcher DataPrefetcher DevicePrefetcher Bar".split()
)
_COUNTERS: Final = frozenset({
    "builtins.range", "tqdm.trange", "tqdm.auto.trange", "tqdm.notebook.trange", "itertools.count",
    "numpy.arange",
})  # fmt: skip


class Iteration:
    """Looks through the wrappers of iterables, by name only."""

    def __init__(self, names: Names, scopes: Scopes) -> None:
        self.names = names
        self.scopes = scopes

    def source(
        self, value: cst.BaseExpression, path: Path = (), depth: int = 0
    ) -> tuple[cst.BaseExpression | None, Path]:
        """Return the iterated object and the path into one of its elements.

        The object is None if the target at `path` is a counter or a tuple of other targets.
        """
        if depth > ASSIGNED:
            return value, path
        value = self._of_either_branch(value, depth)
        if isinstance(value, cst.Name):
            inner = self._assigned(value, depth)
            return self.source(inner, path, depth + 1) if inner is not None else (value, path)
        if not isinstance(value, cst.Call) or not value.args:
            return self._bare(value, path, depth)
        name = self.names.name(value.func)
        first = value.args[0].value
        if name == "builtins.enumerate":
            if not path:
                return (first, ()) if depth and self._wraps(first) else (first, path)
            if path[0] == 0:
                return None, (COUNTER,)
            return self.source(first, path[1:], depth + 1)
        if name == "builtins.zip":
            if path and path[0] < len(value.args):
                return self.source(value.args[path[0]].value, path[1:], depth + 1)
            return (None, path) if path else self.source(first, (), depth + 1)
        if name in _COUNTERS:
            return None, (COUNTER,)
        if self._wraps(value):
            return self.source(first, path, depth + 1)
        return value, path

    def _bare(
        self, value: cst.BaseExpression, path: Path, depth: int
    ) -> tuple[cst.BaseExpression | None, Path]:
        """Look through `iterator.next()`; `itertools.count()` counts without an argument."""
        if isinstance(value, cst.Call) and self.names.name(value.func) in _COUNTERS:
            return None, (COUNTER,)
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
            if value.func.attr.value in ("next", "__next__", "__iter__"):
                return self.source(value.func.value, path, depth + 1)
        return value, path

    def iterated(self, value: cst.BaseExpression, depth: int = 0) -> list[cst.BaseExpression]:
        """Return every iterable that a loop over `value` draws from."""
        if depth > ASSIGNED:
            return []
        value = self._of_either_branch(value, depth)
        if isinstance(value, cst.Call) and value.args:
            name = self.names.name(value.func)
            if name == "builtins.enumerate":
                return self.iterated(value.args[0].value, depth + 1)
            if name == "builtins.zip":
                return [one for arg in value.args for one in self.iterated(arg.value, depth + 1)]
            if self._wraps(value):
                return self.iterated(value.args[0].value, depth + 1)
        if isinstance(value, cst.Name):
            inner = self._assigned(value, depth)
            if inner is not None:
                return self.iterated(inner, depth + 1)
        found, path = self.source(value, (), depth)
        return [found] if found is not None and path == () else []

    def _of_either_branch(self, value: cst.BaseExpression, depth: int) -> cst.BaseExpression:
        """Return a branch of `tqdm(loader) if shown else loader`: both iterate over the same."""
        if not isinstance(value, cst.IfExp):
            return value
        one, other = (self.iterated(each, depth + 2) for each in (value.body, value.orelse))
        same = len(one) == len(other) and all(map(cst.CSTNode.deep_equals, one, other))
        return value.body if one and same else value

    def draws(self, node: cst.CSTNode | None) -> bool:
        """Return whether a call takes the next value of an iterator: `next(it)`, `it.next()`."""
        if not isinstance(node, cst.Call):
            return False
        by_method = method_of(node) in ("next", "__next__") and not node.args
        return by_method or self.names.name(node.func) == "builtins.next"

    def counts(self, value: cst.BaseExpression) -> bool:
        """Return whether a loop over `value` counts through a range."""
        found, path = self.source(value)
        return found is None and path == (COUNTER,)

    def _wraps(self, value: cst.BaseExpression) -> bool:
        """Return whether a call yields the elements of its first argument."""
        if not isinstance(value, cst.Call) or not value.args:
            return False
        name = self.names.name(value.func)
        if name is not None and name in _FIRST:
            return True
        if name is not None and name.startswith("builtins."):
            return name == "builtins.enumerate"
        return word_of(value) in _FIRST_BY_NAME

    def _assigned(self, name: cst.Name, depth: int) -> cst.BaseExpression | None:
        """Return what a name holds by `bar = tqdm(loader)`, or by `for bar in repeat(loader)`."""
        for binding in self.scopes.reaching(name):
            value = binding.value
            if binding.how is How.LOOP and isinstance(value, cst.Call) and value.args:
                if self.names.name(value.func) == "itertools.repeat":
                    return value.args[0].value
            if binding.how in (How.ASSIGN, How.WITH) and value is not None:
                value = self._of_either_branch(value, depth)
                if self._wraps(value):
                    return value
                if isinstance(value, cst.Name) and value.value not in ("None", name.value):
                    return value
        return None
