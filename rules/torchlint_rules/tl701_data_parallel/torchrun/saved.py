"""Checkpoints: a torchrun script saves the same content as before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import libcst as cst

from torchlint.api import ASSIGNED, Edit, How, Script
from torchlint_rules.tl701_data_parallel.torchrun.shape import ObstacleError, Shape, reads

_DUMPS: Final = (
    "torch.save", "pickle.dump", "pickle.dumps", "joblib.dump", "dill.dump", "cloudpickle.dump",
    "torch.jit.save",
)  # fmt: skip
_LOADS: Final = ("torch.load", "pickle.load", "joblib.load", "dill.load")
_COPIES: Final = ("copy.deepcopy", "copy.copy")
_KEYED: Final = ("state_dict", "load_state_dict")
_TELLS_WRAPPED: Final = frozenset({"builtins.isinstance", "builtins.hasattr"})
_PURE: Final = (
    cst.Name, cst.Attribute, cst.Comparison, cst.BooleanOperation, cst.UnaryOperation, cst.Call,
)  # fmt: skip
_STORED: Final = "it would store the wrapper, which plain Python cannot load"
_STORES: Final = frozenset(
    "save saver dump checkpoint checkpointer export stopping stopper".split()
)
_SAME_NETWORK: Final = frozenset("cpu to eval half float cuda".split())


@dataclass
class Saved:
    """Finds what is saved of the wrapped network, and the edits that keep it unchanged."""

    script: Script
    shape: Shape
    edits: list[Edit] = field(default_factory=list)
    _seen: set[cst.CSTNode] = field(default_factory=set)

    def find(self) -> list[Edit]:
        """Return the edits; raises `ObstacleError` if a saved value cannot be traced."""
        for site in self.script.calls.of(*_DUMPS):
            stored = site.given("obj", 0)
            if stored is None:
                raise ObstacleError(site.node, "what it stores is not spelled out")
            self._contents(stored.value, ASSIGNED)
        self._handed_on()
        self._keys()
        self._taken_back()
        return self.edits

    # -- the network itself ---------------------------------------------------

    def is_wrapped(self, node: cst.CSTNode, depth: int = ASSIGNED) -> bool:
        """Return whether an expression can be the wrapped network, by any name."""
        if not depth or not isinstance(node, cst.Name):
            return False
        for binding in self.script.scopes.reaching(node):
            if binding.value is self.shape.wrap.whole:
                return True
            held = self.script.functions.held(binding)
            if any(self.is_wrapped(each, depth - 1) for each in held):
                return True
        return False

    def _is_always_wrapped(self, node: cst.Name) -> bool:
        """Return whether a name is the wrapped network for every caller."""
        parameters = (each.parameter for each in self.script.scopes.reaching(node))
        given = (self.script.functions.given(each) for each in parameters if each is not None)
        return all(
            isinstance(one, cst.Name) and self.is_wrapped(one) for each in given for one in each
        )

    def _contents(self, node: cst.BaseExpression, depth: int) -> None:
        """Trace a saved value to the network, and keep its content unchanged."""
        if node in self._seen:
            return
        self._seen.add(node)
        if isinstance(node, cst.Name):
            self._name(node, depth)
        elif isinstance(node, (cst.Dict, cst.Tuple, cst.List, cst.Set)):
            for element in node.elements:
                self._contents(element.value, depth)
        elif isinstance(node, cst.IfExp):
            self._contents(node.body, depth)
            self._contents(node.orelse, depth)
        elif isinstance(node, cst.Call):
            self._call(node, depth)
        elif isinstance(node, cst.Attribute):
            self._attribute(node, depth)
        else:
            self._refuse_inside(node)

    def _name(self, node: cst.Name, depth: int) -> None:
        if self.is_wrapped(node):
            self.edits += self.script.edits.replace(node, self._as_before(node))
            return
        if not depth:
            raise ObstacleError(
                self.script.tree.smallest_statement(node), "what is stored is not visible here"
            )
        for binding in self.script.scopes.reaching(node):
            if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
                self._parameter(binding.node, depth)
            elif binding.value is not None and binding.how is How.ASSIGN:
                self._contents(binding.value, depth - 1)
        self._stored_under(node.value, node, depth)

    def _parameter(self, parameter: cst.Param, depth: int) -> None:
        owner = self.script.functions.owner_of_self(parameter)
        if owner is not None:
            for bindings in self.script.scopes.scope_at(owner).bindings.values():
                for binding in bindings:
                    if binding.value is not None and self.is_wrapped(binding.value):
                        raise ObstacleError(binding.node, _STORED)
            return
        for given in self.script.functions.given(parameter):
            self._contents(given, depth - 1)

    def _stored_under(self, text: str, place: cst.CSTNode, depth: int) -> None:
        """Trace the values that are put into a dictionary or list by its name."""
        script = self.script
        home = script.scopes.function(place)
        for assign in script.tree.all(cst.Assign):
            for target in assign.targets:
                item = target.target
                if isinstance(item, cst.Subscript) and script.code(item.value) == text:
                    if script.scopes.function(assign) in (home, None) or home is None:
                        self._contents(assign.value, depth - 1)
        for site in script.calls.of_methods("update", "append", "setdefault"):
            if script.code(site.receiver) == text:
                for arg in site.node.args:
                    self._contents(arg.value, depth - 1)

    def _call(self, node: cst.Call, depth: int) -> None:
        script = self.script
        name = script.name(node.func)
        callee = script.functions.callee(node)
        if name == "builtins.dict":
            for arg in node.args:
                self._contents(arg.value, depth)
        elif isinstance(callee, cst.FunctionDef) and callee.name.value != "__init__":
            for returned in script.functions.returns(callee) if depth else ():
                self._contents(returned, depth - 1)
        else:
            self._refuse_inside(node)

    def _attribute(self, node: cst.Attribute, depth: int) -> None:
        text = self.script.code(node)
        scope = self.script.scopes.scope(node)
        if node.attr.value == "module" or not depth:
            return
        for binding in self.script.scopes.reaching_name(text, node, scope):
            if binding.value is not None:
                if self.is_wrapped(binding.value):
                    raise ObstacleError(self.script.tree.smallest_statement(node), _STORED)
                self._contents(binding.value, depth - 1)
        self._stored_under(text, node, depth)

    def _refuse_inside(self, node: cst.CSTNode) -> None:
        """Refuse to save a value that is built from the wrapper itself."""
        for name in self.script.tree.within(node, cst.Name):
            holder = self.script.tree.parent(name)
            word = ""
            if isinstance(holder, cst.Attribute) and holder.value is name:
                word = holder.attr.value
            if self.is_wrapped(name) and (not word or word in _SAME_NETWORK):
                raise ObstacleError(self.script.tree.smallest_statement(name), _STORED)

    def _as_before(self, node: cst.Name) -> str:
        """Return the code for the network as `DataParallel` would save it."""
        inner = f"{node.value}.module"
        if not self._tests() and not self._asked_around(node):
            inner = f"{self.script.code(self.shape.wrap.call.func)}({inner})"
        test = "DISTRIBUTED"
        if not self._is_always_wrapped(node):
            test = f"isinstance({node.value}, DistributedDataParallel)"
        code = f"{inner} if {test} else {node.value}"
        within = self.script.tree.parent(node)
        return f"({code})" if isinstance(within, (cst.IfExp, cst.Attribute)) else code

    def _handed_on(self) -> None:
        """Refuse to pass the wrapper to a function of another file that saves it."""
        script = self.script
        for call in script.tree.all(cst.Call):
            if script.functions.callee(call) is not None or script.name(call.func) in _DUMPS:
                continue
            bare = any(self.is_wrapped(arg.value) for arg in call.args)
            words = script.names.words(script.code(call.func)) if bare else []
            if isinstance(call.func, cst.Name) and bare:
                made = script.values.value_of(call.func).node
                if isinstance(made, cst.Call):
                    words = [*words, *script.names.words(script.code(made.func))]
            if not _STORES.isdisjoint(words):
                raise ObstacleError(call, "another file would store the network")
            if bare and script.name(call.func) in _COPIES:
                raise ObstacleError(call, "a copy of the wrapper belongs to no process group")

    def _taken_back(self) -> None:
        """Refuse a network that is itself loaded from the file of the saved wrapper."""
        if not self.edits or self._tests():
            return
        source = self.shape.wrap.source
        if not isinstance(source, cst.Name):
            return
        for binding in self.script.scopes.reaching(source):
            values = [] if binding.value is None else [binding.value]
            for value in values:
                for call in self._loads(value):
                    raise ObstacleError(call, "what was stored is a wrapped network: it would nest")

    def _loads(self, value: cst.BaseExpression) -> Iterator[cst.Call]:
        """Yield the calls that load the value of an expression."""
        names = list(self.script.tree.within(value, cst.Name))
        values = [value] + [
            binding.value
            for name in names
            for binding in self.script.scopes.reaching(name)
            if binding.value is not None
        ]
        for each in values:
            for call in self.script.tree.within(each, cst.Call):
                if self.script.name(call.func) in _LOADS:
                    yield call

    # -- keys -----------------------------------------------------------------

    def _tests(self) -> list[tuple[cst.If, bool]]:
        """Return the conditions under which the script wraps, with the result that does."""
        tests = []
        script = self.script
        child: cst.CSTNode = self.shape.wrap.statement
        for outer in script.tree.ancestors(child):
            if isinstance(outer, cst.FunctionDef) or outer is self.shape.entry.block:
                break
            if isinstance(outer, cst.If):
                tests.append((outer, child is outer.body))
            child = outer
        return tests

    def _keys(self) -> None:
        """Keep the keys of `state_dict()` if the script wraps conditionally."""
        tests = self._tests()
        if not tests:
            return
        script = self.script
        for site in script.calls.of_methods(*_KEYED):
            network = site.receiver
            if not isinstance(network, cst.Name) or not self.is_wrapped(network):
                continue
            if self._asked_around(network):
                continue
            code = self._condition(network, tests)
            wrapped = "DISTRIBUTED"
            if not self._is_always_wrapped(network):
                wrapped = f"isinstance({network.value}, DistributedDataParallel)"
            inner = f"({network.value}.module if {wrapped} and {code} else {network.value})"
            self.edits += script.edits.replace(network, inner)

    def _condition(self, network: cst.Name, tests: list[tuple[cst.If, bool]]) -> str:
        """Return the code for the test, at a place, that the script would not have wrapped."""
        script = self.script
        parts = []
        for test, answer in tests:
            for name in script.tree.within(test.test, cst.Name):
                there = script.scopes.lookup(name.value, script.scopes.scope(name))
                here = script.scopes.lookup(name.value, script.scopes.scope(network))
                if there is not here:
                    why = "whether its keys begin with `module.` depends on a test elsewhere"
                    raise ObstacleError(script.tree.smallest_statement(network), why)
            if not self._is_pure(test.test):
                raise ObstacleError(test.test, "the keys of checkpoints depend on this test")
            code = script.tree.argument(test.test)
            if isinstance(test.test, (cst.BooleanOperation, cst.IfExp)):
                code = f"({code})"
            parts.append(f"not {code}" if answer else code)
        return parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"

    def _is_pure(self, test: cst.BaseExpression) -> bool:
        """Return whether a test can be evaluated again with the same result."""
        calls = (
            call
            for call in self.script.tree.within(test, cst.Call)
            if not (self.script.name(call.func) or "").startswith(("torch.cuda.", "builtins.len"))
        )
        return next(calls, None) is None and isinstance(test, _PURE)

    def _asked_around(self, node: cst.Name) -> bool:
        """Return whether a test around a use checks that the network is wrapped."""
        script = self.script
        for outer in script.tree.ancestors(node):
            if isinstance(outer, cst.FunctionDef):
                return False
            if not isinstance(outer, (cst.If, cst.IfExp)):
                continue
            if any(
                True for _ in reads(script.tree.within(outer, cst.Attribute), node.value, "module")
            ):
                return True
            if any(
                script.name(call.func) in _TELLS_WRAPPED
                for call in script.tree.within(outer.test, cst.Call)
            ):
                return True
        return False
