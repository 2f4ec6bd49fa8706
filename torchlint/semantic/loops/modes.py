"""Modes: which networks depend on training or evaluation mode, and the mode at each place."""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import cached_property, lru_cache, partial
from typing import Final, NamedTuple

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.calls.instances import SAME, WRAPPERS
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loops
from torchlint.semantic.scope.libraries import INSTANTIATES
from torchlint.semantic.scope.limits import CALLERS
from torchlint.semantic.scope.memo import Memo, memoized
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.syntax.methods import last_word, method_of, receiver_of
from torchlint.semantic.values.kind import Kind, conventional, derived, is_module_class
from torchlint.semantic.values.values import State


class Mode(Enum):
    """The mode that a network is in; HIDDEN if only callers outside this file determine it."""

    TRAIN = auto()
    EVAL = auto()
    HIDDEN = auto()
    UNKNOWN = auto()


class Switch(NamedTuple):
    """A call that sets the mode of networks, possibly through a function of this file."""

    call: cst.Call
    mode: Mode
    network: cst.BaseExpression | None


_HEEDS: Final = re.compile(
    r"torch\.nn\.(?:\w*Dropout\w*|\w*BatchNorm\w*|Transformer\w*|RReLU)"
    r"|torch\.nn\.functional\.(?:\w*dropout\w*|batch_norm|rrelu)"
)
_RATED: Final = frozenset(
    {"torch.nn.RNN", "torch.nn.LSTM", "torch.nn.GRU", "torch.nn.MultiheadAttention"}
)
_INSTANCE_NORM: Final = re.compile(r"torch\.nn\.InstanceNorm[123]d")
_BORN_IN_EVAL: Final = re.compile(
    r"(?:transformers|diffusers)\.(?:\w+\.)+from_pretrained|torch\.jit\.load"
)
_SETS_EVAL: Final = re.compile(
    r"\w*(?:set|to|switch|toggle|put|enter|mode|prep)\w*eval\w*|eval_?mode\w*|set_?mode\w*"
    r"|prep_rollout\w*|freeze\w*",
    re.IGNORECASE,
)
_LOADS: Final = re.compile(
    r"(?:load|restore)\w*_(?:model|net|network|policy)(?:_\w+)?", re.IGNORECASE
)
"""Functions that give a trained network, often ready for use."""
_PLAIN: Final = ("builtins.object", "object")
_WITHOUT_NETWORKS: Final = ("builtins", "torch", "numpy")
_OF_CLASS: Final = "builtins.classmethod"
_SWITCHES: Final = ("eval", "train")
_ZOO: Final = re.compile(r"torchvision\.models\.(?!vit_)[a-z]\w*\d")
"""Makers of networks with batch norm, dropout or dropped paths: `resnet18`, not `vit_b_16`."""
_REMEMBERED: Final = 20_000


class Modes(LoopAnalysis):
    """Finds the effects of `eval()` and `train()` on the networks of a file."""

    def __init__(
        self,
        loops: Loops,
        creators: Callable[[cst.BaseExpression], frozenset[object]],
        same: Callable[[cst.BaseExpression, cst.BaseExpression], bool],
    ) -> None:
        super().__init__(loops)
        self.creators = creators
        self.same = same
        self._switches = [
            Memo[cst.CSTNode, "tuple[Switch, ...]"](
                (), self.names.trail, partial(self._switches_of, depth)
            )
            for depth in range(CALLERS + 1)
        ]
        """The mode changes of a region, one memo for each depth of calls to follow."""

    @cached_property
    def are_switched(self) -> bool:
        """Whether the file calls `eval()` or `train()` on anything."""
        return any(method_of(call) in _SWITCHES for call in self.tree.all(cst.Call))

    # -- dependence on the mode ----------------------------------------------------

    @memoized(None)
    def depends_on_mode(self, network: cst.BaseExpression) -> bool | None:
        """Return whether a network has dropout or batch norm; None if it is not fully visible."""
        owner = self.functions.instance_of(network)
        if owner is not None:
            return self._of_definition(owner)
        if conventional(dotted(network).rpartition(".")[2]) is Kind.CRITERION:
            return False
        if isinstance(network, cst.Subscript) and self.kinds.kind(network.value) is Kind.MODULE:
            return False if self.depends_on_mode(network.value) is False else None
        given = self._given(network)
        if given:
            found = set(map(self.depends_on_mode, given))
            return True if True in found else None if None in found else False
        value = self.values.value_of(network)
        if value.state is State.KNOWN and isinstance(value.node, cst.Call):
            if (told := self._of_call(value.node)) is not None:
                return told
        found = set(map(self._of_call, self._calls(network)))
        return True if True in found else None if None in found or not found else False

    def _given(self, network: cst.BaseExpression) -> list[cst.BaseExpression]:
        """Return what callers pass for a network that is a parameter."""
        node = self.scopes.only(network).node
        return self.functions.given(node) if isinstance(node, cst.Param) else []

    def _of_call(self, call: cst.Call) -> bool | None:
        name = self.names.name(call.func)
        if name in WRAPPERS and call.args:
            return self.depends_on_mode(call.args[0].value)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in SAME:
            return self.depends_on_mode(call.func.value)
        made = self.functions.definition(call.func)
        if isinstance(made, (cst.FunctionDef, cst.ClassDef)):
            makes_own = _OF_CLASS in self.names.marks(made)
            owner = self.scopes.class_of(made) if makes_own else None
            found = self._of_definition(owner or made)
            if isinstance(made, cst.FunctionDef) and found is False:
                return None if any(map(self._is_hidden, self.functions.returns(made))) else False
            return found
        if name is None or not name.startswith("torch.nn."):
            return True if name is not None and _ZOO.match(name) is not None else None
        if any(arg.star for arg in call.args):
            return self._of_region(self.scopes.home(call), set())
        return self._of_region(call, set())

    @cached_method
    def _of_definition(self, made: cst.FunctionDef | cst.ClassDef) -> bool | None:
        return self._of_region(made, set())

    def _of_region(self, region: cst.CSTNode, seen: set[int]) -> bool | None:
        """Return whether code that builds a network uses layers that depend on the mode."""
        if id(region) in seen:
            return False
        seen.add(id(region))
        hidden = isinstance(region, cst.ClassDef) and self._has_hidden_base(region)
        for mention in self._mentions(region):
            name = self.names.name(mention)
            if name is not None and self._needs_mode(mention, name):
                return True
            if isinstance(mention, cst.Attribute) and dotted(mention) == "self.training":
                return True
            made = self.functions.definition(mention)
            if made is not None and not self.tree.inside(region, made):
                found = self._of_region(made, seen)
                if found:
                    return True
                hidden = hidden or found is None
            elif self._makes_hidden(mention, name):
                hidden = True
        return None if hidden else False

    def _is_hidden(self, network: cst.BaseExpression) -> bool:
        """Return whether a function that is not in view may have built a network."""
        made = [each for each in self.origins.of(network).values if isinstance(each, cst.Call)]
        return any(
            self.functions.definition(call.func) is None
            and receiver_of(call, *SAME) is None
            and not (self.names.name(call.func) or "").startswith("torch.")
            for call in made
        )

    def _mentions(self, region: cst.CSTNode) -> Iterator[cst.Name | cst.Attribute]:
        yield from self.tree.within(region, cst.Attribute)
        for name in self.tree.within(region, cst.Name):
            if self.scopes.reads(name):
                yield name

    def _needs_mode(self, mention: cst.CSTNode, name: str) -> bool:
        """Return whether a reference to torch is a layer (or call) that depends on the mode."""
        call = self.tree.parent(mention)
        if not isinstance(call, cst.Call) or call.func is not mention:
            return _HEEDS.fullmatch(name) is not None
        if name in _RATED:
            rate = self.values.argument(call, "dropout", None)
            return rate.state is not State.ABSENT and not self._is_zero(rate.node)
        if _INSTANCE_NORM.fullmatch(name):
            return self._may_be_on(call, "track_running_stats", 4)
        if _HEEDS.fullmatch(name) is None:
            return False
        if "ropout" not in name:
            return True
        if ".functional." in name:
            return self.values.argument(call, "training", 2).state is not State.ABSENT
        return not self._is_zero(self.values.argument(call, "p", 0).node)

    def _may_be_on(self, call: cst.Call, name: str, position: int) -> bool:
        """Return whether a flag, off by default, is or may be on."""
        flag = self.values.argument(call, name, position)
        return flag.state is not State.ABSENT and flag.literal is not False

    def _is_zero(self, node: cst.BaseExpression | None) -> bool:
        return isinstance(node, (cst.Integer, cst.Float)) and float(node.value) == 0

    def _has_hidden_base(self, owner: cst.ClassDef) -> bool:
        names = (self.names.name(base) or "" for base in self.functions.outer_bases(owner))
        return any(not each.startswith("torch.nn.") and each not in _PLAIN for each in names)

    def _makes_hidden(self, mention: cst.CSTNode, name: str | None) -> bool:
        """Return whether a call builds a part of a network that another file defines."""
        call = self.tree.parent(mention)
        if not isinstance(call, cst.Call) or call.func is not mention or name is None:
            return False
        if name.startswith("torch.nn."):
            return False
        last = name.rpartition(".")[2]
        if is_module_class(name) or self.kinds.kind(call) is Kind.MODULE:
            return True
        if name.startswith(".") and self._is_kept(call):  # of the project, but out of view
            return True
        package = name.partition(".")[0]
        is_known = package in _WITHOUT_NETWORKS or package in sys.stdlib_module_names
        return not is_known and last[:1].isupper()

    def _is_kept(self, call: cst.Call) -> bool:
        """Return whether a network keeps the result of a call: `self.down = block(3)`."""
        line = self.tree.parent(call)
        return isinstance(line, cst.Assign) and any(
            dotted(target.target).startswith("self.") for target in line.targets
        )

    # -- switches ---------------------------------------------------------------

    def switches(self, region: cst.CSTNode) -> Iterator[Switch]:
        """Yield the calls directly in a region that set the mode of networks, in order."""
        return iter(self._switches[CALLERS].answer(region))

    def _switches_of(self, depth: int, region: cst.CSTNode) -> tuple[Switch, ...]:
        return tuple(
            found
            for call in self.functions.own(region, cst.Call)
            if (found := self._switch(call, depth)) is not None
        )

    def switch(self, call: cst.Call) -> Switch | None:
        """Return the mode change that a call makes directly."""
        return self._switch(call, 0)

    def _switch(self, call: cst.Call, depth: int) -> Switch | None:
        func = call.func
        if type(func) is cst.Attribute and func.attr.value in _SWITCHES:
            return self._own_switch(call, func)
        callee = self.functions.callee(call)
        if callee is not None and depth:
            inner = self._switches[depth - 1].answer(callee)
            return Switch(call, inner[-1].mode, None) if inner else None
        if callee is None and (_sets_eval(last_word(func)) or self._loads_network(call)):
            return Switch(call, Mode.UNKNOWN, None)
        return None

    def _loads_network(self, call: cst.Call) -> bool:
        """Return whether a function that is not in view gives a network that it loads."""
        given = isinstance(self.tree.parent(call), cst.Assign)
        return given and _LOADS.fullmatch(last_word(call.func)) is not None

    def _own_switch(self, call: cst.Call, func: cst.Attribute) -> Switch | None:
        kind = self.kinds.kind(func.value)
        if kind not in (Kind.MODULE, Kind.UNKNOWN) or self.names.name(func) is not None:
            return None
        callee = self.functions.callee(call)
        if callee is not None:
            owner = self.scopes.scope(callee).node
            if not isinstance(owner, cst.ClassDef):
                return None
            if derived(self.functions.bases(owner)) is not Kind.MODULE:
                inner = self._switches[CALLERS].answer(callee)
                return Switch(call, inner[-1].mode, None) if inner else None
        if func.attr.value == "eval":
            return None if call.args else Switch(call, Mode.EVAL, func.value)
        if not call.args:
            return Switch(call, Mode.TRAIN, func.value)
        flag = self.values.argument(call, "mode", 0)
        mode = {True: Mode.TRAIN, False: Mode.EVAL}.get(flag.literal, Mode.UNKNOWN)
        return Switch(call, mode, func.value)

    def same_network(
        self, first: cst.BaseExpression | None, second: cst.BaseExpression | None
    ) -> bool:
        """Return whether two expressions may be the same network."""
        if first is None or second is None:
            return True
        one, other = (f"{dotted(each).removesuffix('.module')}." for each in (first, second))
        if "." in (one, other) or one.startswith(other) or other.startswith(one):
            return True
        if self.scopes.home(first) is not self.scopes.home(second):
            return not self._are_kept_apart(first, second)
        if not all(self._is_own(network) for network in (first, second)):
            return True
        return self._is_handed(first, second) or self._is_handed(second, first)

    def _are_kept_apart(self, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
        """Return whether two attributes of one object hold networks that were made apart."""
        paths = [dotted(each).removesuffix(".module") for each in (one, other)]
        if not all(path.startswith("self.") and path.count(".") == 1 for path in paths):
            return False
        if not self._are_of_one_class(one, other) or self.same(one, other):
            return False
        return not any(
            dotted(line.targets[0].target) == path
            and other_path in map(dotted, self.tree.within(line.value, cst.Attribute))
            for path, other_path in (paths, reversed(paths))
            for line in self.tree.all(cst.Assign)
        )

    def _are_of_one_class(self, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
        """Return whether two places are in methods of one class, or of one that it derives from."""
        first, second = self.scopes.class_of(one), self.scopes.class_of(other)
        if first is None or second is None:
            return False
        return first in self.functions.lineage(second) or second in self.functions.lineage(first)

    def _is_handed(self, given: cst.BaseExpression, other: cst.BaseExpression) -> bool:
        """Return whether callers may pass the function a network that it also knows from around."""
        home, text = self.scopes.function(given), dotted(other).removesuffix(".module")
        if home is None or text in self.scopes.scope_at(home).bindings:
            return False
        parameters = (each.parameter for each in self.scopes.reaching(given))
        passed = [self.functions.given(each) for each in parameters if each is not None]
        return any(not each or any(self._may_be(one, text) for one in each) for each in passed)

    def _may_be(self, passed: cst.BaseExpression, text: str) -> bool:
        return dotted(passed).removesuffix(".module") in ("", text) or not self._is_own(passed)

    def _is_own(self, network: cst.BaseExpression) -> bool:
        """Return whether a name was assigned or passed a network of its own."""
        if isinstance(network, cst.Attribute):
            return dotted(network).startswith("self.")
        bindings = self.scopes.reaching(network)
        return bool(bindings) and all(map(self._binds_own, bindings))

    def _binds_own(self, binding: Binding) -> bool:
        if binding.how is How.PARAMETER:
            return True
        return binding.how is How.ASSIGN and self._is_new(binding.value)

    def _is_new(self, value: cst.BaseExpression | None) -> bool:
        if not isinstance(value, cst.Call) or self.names.name(value.func) in WRAPPERS:
            return False
        return method_of(value) not in SAME

    def is_configured(self, network: cst.BaseExpression) -> bool:
        """Return whether a configuration says which class a network is made of."""
        return any(self.names.name(call.func) in INSTANTIATES for call in self._calls(network))

    def is_switched_to_eval(self, network: cst.BaseExpression) -> bool:
        """Return whether any code of the file may put this network into evaluation mode."""
        for call in self.tree.all(cst.Call):
            found = self._switch(call, 0)
            if found is None or found.mode is Mode.TRAIN:
                continue
            if self.same_network(found.network, network):
                return True
        return False

    # -- the mode at a place --------------------------------------------------------

    def mode(self, place: cst.CSTNode, network: cst.BaseExpression | None) -> Mode:
        """Return the mode that a network is in when a place is first reached."""
        if self._is_born_in_eval(network):
            return Mode.EVAL
        return self._mode(place, network, CALLERS)

    def last_switch(self, place: cst.CSTNode, network: cst.BaseExpression | None) -> Switch | None:
        """Return the last mode change before a place in the same function."""
        return next(self._before(place, network), None)

    def _before(self, place: cst.CSTNode, network: cst.BaseExpression | None) -> Iterator[Switch]:
        """Yield the mode changes before a place in the same function, the last one first.

        What a call gets is made before it runs: `evaluate(net.eval())`.
        """
        switches = self._switches[CALLERS].answer(self.scopes.home(place))
        order = (self.tree.end if isinstance(place, cst.Call) else self.tree.order)(place)
        behind = bisect_left(switches, order, key=lambda switch: self.tree.order(switch.call))
        for switch in reversed(switches[:behind]):
            if not self.tree.inside(place, switch.call):
                if self.same_network(switch.network, network):
                    yield switch

    def _mode(self, place: cst.CSTNode, network: cst.BaseExpression | None, depth: int) -> Mode:
        around = {id(block) for block in self.scopes.blocks(place)}
        for switch in self._before(place, network):
            if switch.mode is not Mode.TRAIN:
                return switch.mode
            if id(self.scopes.blocks(switch.call)[0]) in around:
                return Mode.TRAIN
        if self._returns_in_eval(place, network):
            return Mode.UNKNOWN
        function = self.scopes.function(place)
        if function is None:
            return Mode.TRAIN
        callers = self.functions.callers(function)
        if self._is_ruled_by_base(function, network) or (
            not callers and self.functions.called_unseen(function)
        ):
            return Mode.UNKNOWN
        if not callers or not depth:
            return Mode.HIDDEN
        found = {self._mode(call, None, depth - 1) for call in callers}
        if Mode.TRAIN in found and Mode.UNKNOWN not in found:
            return Mode.TRAIN
        return found.pop() if len(found) == 1 else Mode.UNKNOWN

    def _is_ruled_by_base(
        self, function: cst.FunctionDef, network: cst.BaseExpression | None
    ) -> bool:
        """Return whether an unseen base class calls a method, and may set the mode first."""
        owner = self.scopes.class_of(function)
        if owner is None or network is None or not dotted(network).startswith("self."):
            return False
        return self._has_hidden_base(owner)

    def _returns_in_eval(self, place: cst.CSTNode, network: cst.BaseExpression | None) -> bool:
        """Return whether a later part of an enclosing loop leaves evaluation mode on."""
        order = self.tree.order(place)
        return any(
            switch.mode is not Mode.TRAIN
            and self.tree.order(switch.call) >= order
            and self.same_network(switch.network, network)
            for loop in self.loops.around(place)
            for switch in self.switches(loop.node.body)
        )

    def _is_born_in_eval(self, network: cst.BaseExpression | None) -> bool:
        """Return whether a network is created in evaluation mode and never trained."""
        made = self._calls(network)
        born = [_BORN_IN_EVAL.fullmatch(self.names.name(call.func) or "") for call in made]
        return (
            bool(born)
            and all(born)
            and not any(
                switch.mode is Mode.TRAIN
                and switch.network is not None  # else a method's, whose calls are looked at, too
                and self.same_network(switch.network, network)
                and not self._differ(switch.network, network)
                for call in self.tree.all(cst.Call)
                if (switch := self._switch(call, 0)) is not None
            )
        )

    def _differ(self, one: cst.BaseExpression | None, other: cst.BaseExpression | None) -> bool:
        """Return whether two expressions are known to be networks that were made apart."""
        if one is None or other is None:
            return False
        made = self._calls(one) and self._calls(other)
        return bool(made) and not self.same(one, other)

    def _calls(self, network: cst.BaseExpression | None) -> list[cst.Call]:
        """Return the calls that make a network; none unless all are known."""
        roots = self.creators(network) if network is not None else ()
        calls = [root for root in roots if isinstance(root, cst.Call)]
        return calls if len(calls) == len(roots) else []


@lru_cache(maxsize=_REMEMBERED)
def _sets_eval(word: str) -> bool:
    """Return whether the name of a function says that it sets evaluation mode."""
    return _SETS_EVAL.fullmatch(word) is not None
