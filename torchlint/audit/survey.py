"""Facts of a script that techniques ask for, computed once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple

import libcst as cst

from torchlint.audit.row import Line
from torchlint.semantic.data.loaders import Loader
from torchlint.semantic.loops.loops import Role
from torchlint.semantic.script import Script
from torchlint.semantic.syntax.methods import word_of
from torchlint.semantic.values.calls import CallSite
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.values import Value

_FRAMEWORKS: Final = {
    "lightning": "Lightning",
    "transformers": "the Trainer of Transformers",
    "accelerate": "Accelerate",
    "ignite": "Ignite",
    "deepspeed": "DeepSpeed",
}
_LAYERS: Final = (
    r"torch\.nn\.(?:(?:Lazy)?(?:Conv\w+|Linear)|LSTM\w*|GRU\w*|RNN\w*|Embedding\w*|Parameter|"
    r"Transformer\w*|MultiheadAttention)"
)
_LONGEST: Final = 48


class ProgramFacts(NamedTuple):
    """What the file that starts a program tells about all of it."""

    is_program: bool = False
    """Whether the file runs by itself: it guards its start, or trains when imported."""
    can_use_accelerator: bool = False


class Survey:
    """A script with the facts that several techniques need.

    `facts` is what is known of the program if another file starts it.
    """

    def __init__(self, script: Script, facts: ProgramFacts | None = None) -> None:
        self.script = script
        self._facts = facts

    # -- places ---------------------------------------------------------------

    def line(self, node: cst.CSTNode) -> Line:
        """Return the line on which a node begins."""
        return Line.in_program(self.script, self.script.span(node).start)

    def quoted(self, node: cst.CSTNode) -> str:
        """Return the code of a node in backquotes, a call without its arguments."""
        if isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.Param)):
            return f"`{node.name.value}`"
        if isinstance(node, cst.Call):
            return f"`{self._short(node.func)}({'…' if node.args else ''})`"
        return f"`{self._short(node)}`"

    def placed(self, node: cst.CSTNode) -> str:
        """Return the code of a node, as `quoted` does, and its line."""
        return f"{self.quoted(node)} on line {self.line(node)}"

    def _short(self, node: cst.CSTNode) -> str:
        text = " ".join(self.script.code(node).split()).replace("`", "'")
        return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"

    # -- parts of the script -------------------------------------------------

    @cached_property
    def loaders(self) -> list[Loader]:
        """The calls that make `DataLoader` objects of torch."""
        return list(self.script.loaders)

    @cached_property
    def training(self) -> cst.CSTNode | None:
        """The first training loop, else the first backward pass."""
        loops = self.script.loops.of(Role.TRAIN_BATCH)
        if loops:
            return loops[0].node
        return self.method("backward", "manual_backward")

    @cached_property
    def optimizers(self) -> list[CallSite]:
        """The calls that make optimizers."""
        return [
            self.script.calls.at(call)
            for call in self.script.tree.all(cst.Call)
            if call.args and self.script.kind(call) is Kind.OPTIMIZER
        ]

    @cached_property
    def networks(self) -> list[cst.ClassDef]:
        """The classes of networks."""
        return [
            each
            for each in self.script.tree.all(cst.ClassDef)
            if any((self.script.name(base.value) or "").endswith("Module") for base in each.bases)
        ]

    @cached_property
    def has_layers(self) -> bool:
        """Whether the file defines a network of layers."""
        return self.called(_LAYERS) is not None

    @cached_property
    def facts(self) -> ProgramFacts:
        """What is known of the whole program."""
        return self._facts or ProgramFacts(
            self._is_program(), self.script.program.devices.can_use_accelerator
        )

    @property
    def can_use_accelerator(self) -> bool:
        """Whether a run of the program can use an accelerator, as far as it is known."""
        return self.script.program.devices.can_use_accelerator or self.facts.can_use_accelerator

    def _is_program(self) -> bool:
        guard = self.script.loops.guard
        if guard.guards():
            return True
        return self.training is not None and guard.at_import(self.training)

    @property
    def framework(self) -> str | None:
        """The name of the framework that owns the training loop."""
        found = self.script.program.devices.framework
        return None if found == "none" else _FRAMEWORKS.get(found, found)

    # -- calls and words ------------------------------------------------------

    @cached_property
    def named_calls(self) -> list[tuple[str, cst.Call]]:
        """Every call of something with a qualified name."""
        return [
            (name, call)
            for call in self.script.tree.all(cst.Call)
            if (name := self.script.name(call.func)) is not None
        ]

    def called(self, pattern: str) -> cst.Call | None:
        """Return the first call whose qualified name matches the whole pattern."""
        asked = re.compile(pattern)
        return next((call for name, call in self.named_calls if asked.fullmatch(name)), None)

    def method(self, *names: str) -> cst.Call | None:
        """Return the first call of a method of one of these names."""
        return next((site.node for site in self.script.calls.of_methods(*names)), None)

    def named(self, name: str) -> cst.CSTNode | None:
        """Return the first expression with a qualified name, called or not."""
        last = name.rpartition(".")[2]
        for attribute in self.script.tree.all(cst.Attribute):
            if attribute.attr.value == last and self.script.name(attribute) == name:
                return attribute
        names = (each for each in self.script.tree.all(cst.Name) if self.script.name(each) == name)
        return next(names, None)

    @cached_property
    def _words(self) -> list[tuple[str, cst.CSTNode]]:
        """Every identifier of the code with its node, except those of imports."""
        found: list[tuple[str, cst.CSTNode]] = []
        found += [(each.value, each) for each in self.script.tree.all(cst.Name)]
        found += [(each.attr.value, each) for each in self.script.tree.all(cst.Attribute)]
        found += [
            (each.keyword.value, each) for each in self.script.tree.all(cst.Arg) if each.keyword
        ]
        found += [(each.name.value, each) for each in self.script.tree.all(cst.FunctionDef)]
        found += [(each.name.value, each) for each in self.script.tree.all(cst.ClassDef)]
        found += [(each.name.value, each) for each in self.script.tree.all(cst.Param)]
        return sorted(found, key=lambda pair: self.script.tree.order(pair[1]))

    def word(self, pattern: str) -> cst.CSTNode | None:
        """Return the first identifier that matches the whole pattern."""
        asked = re.compile(pattern, re.IGNORECASE)
        return next((node for word, node in self._words if asked.fullmatch(word)), None)

    def calling(self, pattern: str) -> cst.Call | None:
        """Return the first call whose last name matches, wherever it comes from."""
        asked = re.compile(pattern)
        for call in self.script.tree.all(cst.Call):
            if asked.fullmatch(word_of(call)):
                return call
        return None

    def keyword(self, pattern: str) -> cst.Arg | None:
        """Return the first keyword argument that matches a pattern and is not known to be off."""
        asked = re.compile(pattern)
        for arg in self.script.tree.all(cst.Arg):
            if arg.keyword is not None and asked.fullmatch(arg.keyword.value):
                if not self.is_off(self.script.values.value_of(arg.value)):
                    return arg
        return None

    def assigned(self, name: str) -> list[cst.Assign]:
        """Return the assignments to a qualified name such as `torch.backends.cudnn.benchmark`."""
        last = name.rpartition(".")[2]
        return [
            line
            for line in self.script.tree.all(cst.Assign)
            for each in line.targets
            if isinstance(each.target, cst.Attribute)
            and each.target.attr.value == last
            and self.script.name(each.target) == name
        ]

    def assigned_attribute(self, name: str) -> bool:
        """Return whether an attribute of this name is assigned, on whatever object."""
        return any(
            isinstance(self.script.tree.parent(each), cst.AssignTarget)
            for each in self.script.functions.attributes(name)
        )

    def strings(self, text: str) -> Iterator[cst.SimpleString]:
        """Yield the string literals that equal a text."""
        for node in self.script.tree.all(cst.SimpleString):
            if node.evaluated_value == text:
                yield node

    # -- values ---------------------------------------------------------------

    def is_off(self, value: Value) -> bool:
        """Return whether a value is known to be 0, False, None or empty."""
        return value.is_literal and not value.literal

    def default(self, node: cst.BaseExpression) -> Any:
        """Return the default of the option that a value comes from, None for others."""
        option = self.script.values.options.of(node)
        return None if option is None else option.default
