"""Devices and frameworks: what a script can run on, and who owns its training loop."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import How, dotted
from torchlint.semantic.scope.target import Target
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import last_word, receiver_of, root_of
from torchlint.semantic.values.kind import Kind, conventional
from torchlint.semantic.values.kinds import Kinds
from torchlint.semantic.values.values import State, Values

_ACCELERATOR: Final = re.compile(r"(?:cuda|gpu|xpu|mps|hpu|npu)(?::\d+)?(?:\b|$)")
_AUTOCASTING: Final = frozenset({"torch.cuda.amp.custom_fwd", "torch.cuda.amp.custom_bwd"})
"""Decorators of what runs on a GPU."""
_ACCELERATOR_CALLS: Final = (
    "torch.accelerator.",
    "torch.xpu.",
    "torch.cuda.is_available",
    "torch.cuda.device_count",
    "torch.cuda.set_device",
    "torch.cuda.current_device",
    "torch.cuda.synchronize",
    "torch.cuda.device",
    "torch.cuda.amp.autocast",
    "ignite.distributed.",
)
_INDICES: Final = frozenset("rank local_rank gpu gpu_id device_id".split())
"""Names of the index of a device, which no CPU has."""
_DEVICES: Final = frozenset("device devices".split())
_SEEDERS: Final = ("torch.cuda.manual_seed", "torch.cuda.manual_seed_all")
_CALLS: Final = frozenset("cuda xpu".split())
_NAMING: Final = "torch.device torch.set_default_device torch.autocast torch.amp.autocast".split()
_NAMED: Final = ("lightning", "accelerate", "ignite", "fastai", "deepspeed", "catalyst")
_FRAMEWORKS: Final = {"pytorch_lightning": "lightning", **dict(zip(_NAMED, _NAMED, strict=True))}
_OWNERS: Final = ("accelerator", "fabric", "trainer", "Trainer")
_STEPS: Final = ("training_step", "configure_optimizers")
"""What is spelled where another module makes the object of a framework that owns the loop."""
_ROOTS: Final = tuple(f"{root}." for root in _FRAMEWORKS)
_PLACING: Final = frozenset("lightning accelerate fastai deepspeed transformers catalyst".split())
"""Frameworks that move networks and batches to a device by themselves."""
_HELPERS: Final = re.compile(
    r"(?:lightning|pytorch_lightning)\.(?:\w+\.)*"
    r"(?:seed_everything|seed|loggers|utilities|rank_zero)(?:[._]\w+)*|"
    r"accelerate\.(?:utils|logging|state)(?:\.\w+)*|ignite\.(?:utils|metrics)(?:\.\w+)*|"
    r"deepspeed\.ops(?:\.\w+)*|catalyst\.(?:utils|contrib|data|metrics|tools)(?:\.\w+)*"
)
"""What frameworks offer to loops that they do not own."""
_TRAINERS: Final = re.compile(r"transformers\.\w*Trainer")
_ARGUMENTS: Final = "transformers.TrainingArguments"
"""A class that holds options for hand-written loops, too."""


class Devices(Analysis):
    """Finds whether a script can use an accelerator and which framework owns its loop."""

    def __init__(
        self,
        functions: Functions,
        kinds: Kinds,
        values: Values,
        target: Target,
        running: Devices | None = None,
    ) -> None:
        super().__init__(functions)
        self.running = running
        self.kinds = kinds
        self.values = values
        self.target = target

    @cached_property
    def can_use_accelerator(self) -> bool:
        """Whether some run of the script can use a GPU or another accelerator."""
        if self.target.device != "auto":
            return self.target.device != "cpu"
        if self.tree.view.is_on_accelerator or self._looks_accelerated():
            return True
        return self.running is not None and self.running.can_use_accelerator

    def _looks_accelerated(self) -> bool:
        if self.framework in _PLACING:
            return True
        marked = (each for each in self.tree.all(cst.FunctionDef) if each.decorators)
        if any(not _AUTOCASTING.isdisjoint(self.names.marks(each)) for each in marked):
            return True
        for call in self.tree.all(cst.Call):
            func = call.func
            if type(func) is cst.Attribute:
                if func.attr.value in _CALLS and self.names.name(func) is None:
                    return True
                if func.attr.value == "to" and any(
                    self._may_be_accelerator(arg.value) or last_word(arg.value).lower() in _INDICES
                    for arg in call.args
                ):
                    return True
            name = self.names.name(func)
            if name in _NAMING and call.args and self._may_be_accelerator(call.args[0].value):
                return True
            if name is not None and name.startswith(_ACCELERATOR_CALLS):
                if not (self._only_seeds(call) or self._is_never_read(call)):
                    return True
        return self._mentions_accelerator()

    def _only_seeds(self, call: cst.Call) -> bool:
        """Return whether a call is the test of an `if` that only seeds generators."""
        guard = self.tree.parent(call)
        if not isinstance(guard, cst.If) or guard.orelse is not None:
            return False
        done = [self.names.name(each.func) for each in self.tree.within(guard.body, cst.Call)]
        return bool(done) and all(name in _SEEDERS for name in done)

    def _is_never_read(self, call: cst.Call) -> bool:
        """Return whether a function keeps what a call answers under a name that nothing reads."""
        line = self.tree.parent(call)
        if not isinstance(line, cst.Assign) or self.scopes.function(line) is None:
            return False
        kept = [self.scopes.stored(each.target) for each in line.targets]
        return not any(each is None or any(self.scopes.uses(each)) for each in kept)

    def _mentions_accelerator(self) -> bool:
        """Return whether a string that names an accelerator is used as a device."""
        for text in self.tree.all(cst.SimpleString):
            if not _ACCELERATOR.fullmatch(text.value.strip("rbuRBU").strip("'\"")):
                continue
            holder = self.tree.parent(text)
            if isinstance(holder, cst.Arg) and holder.keyword is not None:
                if holder.keyword.value in ("device", "device_type", "default"):
                    return True
            if isinstance(holder, (cst.IfExp, cst.Assign, cst.AnnAssign, cst.Param)):
                return True
        return False

    def _may_be_accelerator(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.IfExp):
            return self._may_be_accelerator(node.body) or self._may_be_accelerator(node.orelse)
        if isinstance(node, (cst.SimpleString, cst.FormattedString)):
            text = self.tree.code(node).strip("rbfuRBFU").strip("'\"")
            return _ACCELERATOR.match(text) is not None
        if isinstance(node, cst.Call):
            if self.names.name(node.func) == "torch.device" and node.args:
                return self._may_be_accelerator(node.args[0].value)
            filled = template(node)
            if filled is not None:
                return self._may_be_accelerator(filled)
            return self.kinds.kind(node) is Kind.DEVICE
        if isinstance(node, cst.Integer):
            return True
        if isinstance(node, cst.BinaryOperation):
            return self._may_be_accelerator(node.left)
        if isinstance(node, (cst.Name, cst.Attribute)):
            return self._named_device(node)
        return isinstance(node, cst.Subscript) and self._entry(node)

    def _entry(self, node: cst.Subscript) -> bool:
        """Return whether an entry of a dictionary that the file does not show is a device."""
        value = self.values.value_of(node)
        if value.state is State.KNOWN and value.node is not None and value.node is not node:
            return self._may_be_accelerator(value.node)
        if self.kinds.kind(node) not in (Kind.UNKNOWN, Kind.DEVICE) or len(node.slice) != 1:
            return False
        if not _DEVICES.isdisjoint(words(last_word(node.value))):
            return True
        word = self.values.key(node)
        return isinstance(word, str) and conventional(word.lower()) is Kind.DEVICE

    @memoized(False)
    def _named_device(self, node: cst.Name | cst.Attribute) -> bool:
        bindings = self.functions.bindings(node)
        shown = [b.assigned for b in bindings if b.assigned is not None]
        if shown and len(shown) == len(bindings):
            if any(map(self._may_be_accelerator, shown)):
                return True
            if not any(self._is_made_of(value, node) for value in shown):
                return self._is_unseen_device(node, shown)
        else:
            value = self.values.value_of(node)
            if value.state is State.KNOWN and value.node is not None and value.node is not node:
                parameters = [each for each in bindings if each.parameter is not None]
                given = [one for each in parameters for one in self.functions.held(each)]
                return self._may_be_accelerator(value.node) or self._is_unseen_device(node, given)
        if self.kinds.kind(node) is Kind.DEVICE or self._configured(node):
            return True
        return isinstance(node, cst.Name) and self._takes_several(node)

    def _is_unseen_device(
        self, node: cst.Name | cst.Attribute, values: list[cst.BaseExpression]
    ) -> bool:
        """Return whether what is named like a device is made by functions out of view."""
        named = conventional(last_word(node).lower()) is Kind.DEVICE
        return named and bool(values) and all(map(self._is_made_unseen, values))

    def _is_made_unseen(self, value: cst.BaseExpression) -> bool:
        """Return whether a value is the result of a function that is not in view."""
        made = self.values.value_of(value).node or value
        return (
            isinstance(made, cst.Call)
            and self.functions.definition(made.func) is None
            and self.kinds.kind(made) is Kind.UNKNOWN
        )

    def _takes_several(self, node: cst.Name) -> bool:
        """Return whether a function moves several of its tensors to a parameter of its own.

        Only devices suit inputs and labels alike.
        """
        bindings = self.scopes.reaching(node)
        if len(bindings) != 1 or not isinstance(bindings[0].node, cst.Param):
            return False
        param, home = bindings[0].node, self.scopes.function(node)
        if home is None or param.annotation is not None or self.functions.given(param):
            return False
        moved: set[str] = set()
        for call in self.functions.own(home.body, cst.Call):
            func, args = call.func, call.args
            if type(func) is cst.Attribute and func.attr.value == "to" and len(args) == 1:
                to = args[0].value
                if isinstance(to, cst.Name) and self.scopes.reaching(to) == bindings:
                    moved.add(dotted(func.value))
        return len(moved - {""}) > 1

    def _is_made_of(self, value: cst.BaseExpression, node: cst.Name | cst.Attribute) -> bool:
        """Return whether a value depends on an attribute, so that it had another value before."""
        path = dotted(node)
        return any(dotted(each) == path for each in self.tree.within(value, cst.Attribute))

    def _configured(self, node: cst.Name | cst.Attribute) -> bool:
        """Return whether a device comes from an imported configuration (`config.DEVICE`)."""
        root = root_of(node)
        return conventional(last_word(node).lower()) is Kind.DEVICE and any(
            binding.how is How.IMPORT for binding in self.scopes.reaching(root)
        )

    @cached_property
    def framework(self) -> str:
        """The framework that owns the training loop, `none` if the script owns it."""
        modules = [name for name in self.functions.imported if not self._helps(name)]
        modules += [f"{module}.*" for module in self.scopes.star_imports]
        for module in modules:
            found = _FRAMEWORKS.get(module.partition(".")[0])
            if found is not None:
                return found
            by_hand = module == _ARGUMENTS and self.functions.attributes("backward")
            if _TRAINERS.fullmatch(module) or (module == _ARGUMENTS and not by_hand):
                return "transformers"
        return "none"

    def _helps(self, imported: str) -> bool:
        """Return whether only helpers of a framework are used through an import."""
        if imported.partition(".")[0] not in _FRAMEWORKS or self._goes_through_owner:
            return False
        used = [name for name in self._framework_names if f"{name}.".startswith(f"{imported}.")]
        return all(map(_HELPERS.fullmatch, used or [imported]))

    @cached_property
    def _goes_through_owner(self) -> bool:
        """Whether code in view uses or serves what owns a loop, wherever that is made."""
        return any(map(self.functions.mentions, _OWNERS)) or any(
            function.name.value in _STEPS for function in self.tree.all(cst.FunctionDef)
        )

    @cached_property
    def _framework_names(self) -> frozenset[str]:
        """The longest qualified names of frameworks that the code in view spells."""
        spelled: list[cst.Name | cst.Attribute] = [
            *self.tree.all(cst.Name),
            *self.tree.all(cst.Attribute),
        ]
        named = (
            self.names.name(node)
            for node in spelled
            if not isinstance(self.tree.parent(node), cst.Attribute)
        )
        return frozenset(name for name in named if name and name.startswith(_ROOTS))


def template(call: cst.Call) -> cst.SimpleString | None:
    """Return the text into which a call puts values: `"cuda:{}".format(index)`."""
    text = receiver_of(call, "format")
    return text if isinstance(text, cst.SimpleString) else None
