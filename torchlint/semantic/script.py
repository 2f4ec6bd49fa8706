"""Script: the facade through which rules ask what a file means."""

from __future__ import annotations

import ast
from collections.abc import Callable
from enum import Enum
from functools import cache, partial
from typing import Any, Final, TypeVar

import libcst as cst

from torchlint.semantic.calls.functions import Functions
from torchlint.semantic.edits.hoisting import LoopEdits
from torchlint.semantic.facts import (
    EvaluationFacts,
    LoaderFacts,
    LoopFacts,
    ModuleFacts,
    OptimizerFacts,
    ProgramFacts,
    ReadingFacts,
)
from torchlint.semantic.scope.links import Links
from torchlint.semantic.scope.memo import Memo
from torchlint.semantic.scope.names import Names
from torchlint.semantic.scope.scopes import Scopes
from torchlint.semantic.scope.sections import Sections
from torchlint.semantic.scope.target import Target
from torchlint.semantic.scope.vocabulary import Vocabulary
from torchlint.semantic.syntax import read
from torchlint.semantic.syntax.places import joined
from torchlint.semantic.syntax.tree import Tree
from torchlint.semantic.values.calls import Calls
from torchlint.semantic.values.devices import Devices
from torchlint.semantic.values.facts import ValueFacts
from torchlint.semantic.view import ALONE, View
from torchlint.source import Source

_MOST_TRAININGS: Final = 16
S = TypeVar("S")
T = TypeVar("T")


class Script:
    """A parsed file, or a section of one, and everything that rules may ask about it.

    Nodes of linked modules follow those of the file: rules meet them like any others, and what is
    found at one of them is not reported. Sections share the scopes, the names and the edits of the
    whole file.
    """

    def __init__(
        self,
        source: Source,
        tree: Tree,
        target: Target,
        whole: Script | None = None,
        running: Script | None = None,
    ) -> None:
        self.source = source
        self._target = target
        self.running: Script = running or self
        """What of the file runs at import."""
        self.whole: Script = whole or self
        """The whole file."""
        self.tree = tree
        """The nodes, and their places and code."""
        self.code = tree.code
        """Return the code of a node for messages, comparison and reuse elsewhere."""
        self.span = tree.span
        """Return the characters of a node, an expression with its own parentheses."""
        self.scopes: Scopes = whole.scopes if whole is not None else Scopes(tree)
        """Which assignment a name can stand for, and what is around a node."""
        links = Links(self.scopes) if whole is None and tree.view is not ALONE else None
        self.names: Names = whole.names if whole is not None else Names(self.scopes, links)
        """The qualified names of expressions."""
        self.name = self.names.name
        """Return the canonical qualified name of an expression, None if there is not one."""
        self.functions = Functions(tree, self.scopes, self.names)
        """The functions and classes, who calls them, and the imports."""
        vocabulary = Vocabulary(tree)
        self.values = ValueFacts(self.functions, vocabulary)
        self.kind = self.values.kind
        """Return the kind of an expression."""
        self.calls = Calls(self.values)
        others = running.program.devices if running is not None else None
        devices = Devices(self.functions, self.values.kinds, self.values, target, others)
        self.loops = LoopFacts(self.values, devices)
        self.readings = ReadingFacts(self.values, self.loops, self.calls)
        self.loaders = LoaderFacts(self.values, self.loops)
        self.optimizers = OptimizerFacts(self.values, self.loops)
        self.modules = ModuleFacts(self.values, self.loops, self.optimizers)
        updates, modes = self.optimizers.updates, self.modules.modes
        self.evaluations = EvaluationFacts(self.loops, modes, updates, self.calls)
        self.program: ProgramFacts = ProgramFacts(
            self.values,
            self.loops,
            self.calls,
            self.loaders,
            target,
            vocabulary,
            running.program.purpose if running is not None else None,
        )
        self.edits: LoopEdits = (
            whole.edits if whole is not None else LoopEdits(tree.source, tree, self.scopes)
        )
        """The edits of fixes."""
        self._sections = Sections(tree, self.names)
        self._surroundings: dict[cst.CSTNode, Script] = {}
        self._found: dict[Callable[[Script], Any], Any] = {}
        self._memos: dict[Callable[[Script, Any], Any], Memo[Any, Any]] = {}

    @classmethod
    def parse(
        cls,
        source: Source,
        target: Target | None = None,
        tree: ast.Module | None = None,
        view: View = ALONE,
    ) -> Script:
        """Parse a file, reusing CPython's tree if given; raises `ParserSyntaxError`.

        `view` are the definitions of other modules with which the file is analyzed.
        """
        syntax = read(source, tree)
        whole = joined(source, syntax, view.modules)
        linked = Tree(whole.source, syntax, whole.texts, view)
        return cls(source, linked, target or Target())

    def around(self, node: cst.CSTNode) -> Script:
        """Return what has to do with a step or an optimizer, not what trains something else.

        Nor functions that only get things of their own. What stands in one definition has the same
        surroundings. All of a file with many definitions that step has to do with each node, which
        bounds the time.
        """
        home = self.whole._sections.home(node)
        found = self._surroundings.get(home)
        if found is None:
            steps = [step.backward for step in self.loops.steps.all]
            asked = len({self.whole._sections.home(each) for each in steps}) <= _MOST_TRAININGS
            tree = self.whole._sections.around(node, steps) if asked else None
            found = self._surroundings[home] = self._beside(tree)
        return found

    def _beside(self, tree: Tree | None) -> Script:
        """Return some statements of the file as a script, all that is here without any."""
        if tree is None:
            return self
        return Script(self.source, tree, self._target, self.whole, self.running)

    def once(self, find: Callable[[Script], T]) -> T:
        """Return what a function computes for the whole file, computed only once."""
        try:
            found: T = self._found[find]
        except KeyError:
            found = self._found[find] = find(self)
        return found

    def answer(self, question: Callable[[Script, S], T], subject: S, circular: T) -> T:
        """Return a rule's own answer about a subject, computed only once.

        `circular` is the answer if the question leads back to itself, as it can when following
        values: `x = f(x)`.
        """
        memo = self._memos.get(question)
        if memo is None:
            memo = Memo(circular, self.names.trail, partial(question, self))
            self._memos[question] = memo
        found: T = memo.answer(subject)
        return found


def sections(script: Script) -> tuple[Script, ...]:
    """Return the parts of a file that have nothing to do with each other.

    The first is what runs at import. What is true of one does not depend on the others.
    """
    first, *others = script._sections.all()
    if not others:
        return (script,)
    running = Script(script.source, first, script._target, script)
    return (
        running,
        *(Script(script.source, tree, script._target, script, running) for tree in others),
    )


def forget(script: Script) -> None:
    """Drop all facts of a script that is no longer needed.

    They form reference cycles, which would otherwise stay until the garbage collector runs.
    """
    facts: list[Any] = [script]
    for fact in facts:
        held = tuple(vars(fact).values())
        vars(fact).clear()
        for part in held:
            if isinstance(part, dict):
                part.clear()
            elif _is_fact(part.__class__) and getattr(part, "__dict__", None):
                facts.append(part)


@cache
def _is_fact(kind: type) -> bool:
    """Return whether objects of a type belong to one script and remember what was found."""
    ours = kind.__module__.startswith("torchlint.semantic.")
    return ours and not issubclass(kind, (Enum, Script, Target, View))
