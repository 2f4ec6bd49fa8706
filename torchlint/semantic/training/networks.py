"""Networks: which network an expression is, and which optimizers hold its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.calls.instances import PREPARING, SAME, WRAPPERS
from torchlint.semantic.scope.limits import ASSIGNED
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import is_none, method_of, named_arguments
from torchlint.semantic.training.freezing import Freeze, Freezing
from torchlint.semantic.training.optimizers import Optimizers
from torchlint.semantic.training.parameters import Parameters
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues, ValueAnalysis
from torchlint.semantic.values.origins import Steps

Root = cst.CSTNode | Binding | tuple[object, ...] | None
"""What creates a network: a call, a parameter or a class; None if it is unknown."""
Roots = frozenset[Root]

_SAME: Final = SAME | {"requires_grad_", "share_memory", "xpu", "apply"}
_UNKNOWN: Final[Roots] = frozenset({None})
_COPIES: Final = frozenset({"copy.deepcopy", "copy.copy"})
_AVERAGES: Final = frozenset({"torch.optim.swa_utils.AveragedModel"})
_OVERWRITES: Final = frozenset("copy_ mul_ lerp_ add_".split())
_TRAINS: Final = frozenset({
    "torch.autograd.grad", "torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_",
    "torch.func.functional_call",
})  # fmt: skip
_FREEZING: Final = frozenset("freeze frozen unfreeze grad grads toggle".split())
_CONSTANTS: Final = ("True", "False", "None")


class Unheld(NamedTuple):
    """A network whose parameters no optimizer of the file holds.

    `copied`: its weights are copied or averaged from another network. `frozen`: none of its
    parameters asks for gradients; None if some may not. `in_sight`: the file shows where it is
    made. `pretrained`: it is loaded with trained weights. `learns`: it is known to have parameters.
    """

    copied: bool
    frozen: bool | None
    in_sight: bool
    pretrained: bool
    learns: bool


class _Holder(NamedTuple):
    """What an optimizer, or code that reads gradients, holds; incomplete if part is unknown."""

    call: cst.Call
    roots: Roots
    updates: bool


class Networks(ValueAnalysis):
    """Follows networks to where they are made, and optimizers to the networks that they hold."""

    def __init__(self, values: KnownValues, optimizers: Optimizers, freezing: Freezing) -> None:
        super().__init__(values)
        self.optimizers = optimizers
        self.freezing = freezing
        self.parameters = Parameters(self.functions)

    # -- identity -------------------------------------------------------------

    def same(self, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
        """Return whether two expressions may be the same network, or one a part of the other."""
        return self._touch(self.roots(one), self.roots(other))

    def may_touch(self, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
        """Return whether two expressions may be one network or parts of it, for all that is known.

        What is read from a network is a part of it.
        """
        left, right = self._known_roots(one), self._known_roots(other)
        return None in left or None in right or self._touch(left, right)

    def _known_roots(self, node: cst.BaseExpression) -> Roots:
        found = self.roots(node)
        if None in found and isinstance(node, (cst.Attribute, cst.Subscript)):
            return self._known_roots(node.value)
        return found

    @memoized(frozenset())
    def roots(self, node: cst.BaseExpression) -> Roots:
        """Return what creates the network that an expression is."""
        if isinstance(node, cst.Attribute) and node.attr.value == "module":
            return self.roots(node.value)
        bindings = self.functions.bindings(node)
        if bindings:
            return frozenset(root for each in bindings for root in self._of_binding(each))
        if isinstance(node, cst.Attribute):
            path, owner = dotted(node), self.scopes.class_of(node)
            return frozenset({(path, owner)}) if path.startswith("self.") else _UNKNOWN
        if isinstance(node, cst.Call):
            return self._of_call(node)
        if isinstance(node, cst.IfExp):
            return self.roots(node.body) | self.roots(node.orelse)
        return self.members(node, ()) if isinstance(node, cst.Subscript) else _UNKNOWN

    def reads(self, network: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        """Yield the names and attributes that may be a network, in whatever function."""
        roots = self.creators(network) - _UNKNOWN
        for node in (*self.tree.all(cst.Name), *self.tree.all(cst.Attribute)):
            if self.scopes.reads(node) and not roots.isdisjoint(self.creators(node)):
                yield node

    def members(self, container: cst.BaseExpression, steps: Steps) -> Roots:
        """Return what creates the networks that a member of a container can be."""
        members = self.origins.of(container, steps).known
        return frozenset(root for each in members for root in self.roots(each)) or _UNKNOWN

    def _of_binding(self, binding: Binding) -> Roots:
        value = binding.value
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            return self._of_parameter(binding.node)
        if binding.how is How.IMPORT:
            return frozenset({binding})
        if value is None:
            return frozenset() if binding.how is How.DECLARED else _UNKNOWN
        if binding.how is How.ASSIGN:
            nothing = is_none(value)
            return frozenset() if nothing else self.roots(value)
        if binding.how is How.LOOP:
            source, path = self.iteration.source(value, binding.path)
            return self.members(source, (None, *path)) if source is not None else _UNKNOWN
        if binding.how is How.UNPACKED and len(binding.path) == 1 and not binding.starred:
            return self._of_element(value, binding.path[0])
        return _UNKNOWN

    def _of_parameter(self, parameter: cst.Param) -> Roots:
        owner = self.functions.owner_of_self(parameter)
        if owner is not None:
            return frozenset({owner})
        given = self.functions.given(parameter)
        found: set[Root] = {root for each in given for root in self.roots(each)}
        if not given or self.functions.given_unseen(parameter):
            found.add(parameter)
        return frozenset(found)

    def _of_element(self, value: cst.BaseExpression, index: int) -> Roots:
        if isinstance(value, (cst.Tuple, cst.List)) and index < len(value.elements):
            return self.roots(value.elements[index].value)
        if isinstance(value, cst.Call):
            func = value.func
            if isinstance(func, cst.Attribute) and func.attr.value in PREPARING:
                plain = [arg.value for arg in value.args if arg.keyword is None and not arg.star]
                return self.roots(plain[index]) if index < len(plain) else _UNKNOWN
            return frozenset({(value, index)})
        return self.members(value, (index,))

    def _of_call(self, call: cst.Call) -> Roots:
        func = call.func
        if self.names.name(func) in WRAPPERS and call.args:
            return self.roots(call.args[0].value)
        if isinstance(func, cst.Attribute) and self.functions.definition(func) is None:
            if func.attr.value in _SAME:
                return self.roots(func.value)
            if func.attr.value in PREPARING and len(call.args) == 1:
                return self.roots(call.args[0].value)
        function = self.functions.definition(func)
        if not isinstance(function, cst.FunctionDef):
            return frozenset({call})
        found: set[Root] = set()
        for value in self.functions.returns(function):
            given = self._passed_on(value, call, function)
            found |= self.roots(given) if given is not None else {call}
        return frozenset(found or {call})

    def _passed_on(
        self, value: cst.BaseExpression, call: cst.Call, function: cst.FunctionDef
    ) -> cst.BaseExpression | None:
        """Return the argument of a call that its function returns."""
        while isinstance(value, cst.Call):
            if self.names.name(value.func) in WRAPPERS and value.args:
                value = value.args[0].value
            elif isinstance(value.func, cst.Attribute) and value.func.attr.value in _SAME:
                value = value.func.value
            else:
                return None
        binding = self.scopes.only(value)
        if binding.how is not How.PARAMETER:
            return None
        return self.functions.passed(call, function, binding.name)

    def creators(self, node: cst.BaseExpression) -> Roots:
        """Return what creates a network, in the functions that return it where that is known."""
        return self._entered(self.roots(node))

    def _entered(self, roots: Roots) -> Roots:
        """Return what creates networks, inside the functions that return them where it is known."""
        found: set[Root] = set()
        seen: set[Root] = set()
        pending = [*roots]
        while pending:
            root = pending.pop()
            if root not in seen:
                seen.add(root)
                inside = self._inside(root)
                pending += inside
                if not inside:
                    found.add(root)
        return frozenset(found) or roots

    @cached_method
    def _inside(self, root: Root) -> Roots:
        """Return what creates a network that a function in view returns, empty for any other."""
        match root:
            case cst.Call():
                return frozenset[Root]().union(*map(self.roots, self._returned(root)))
            case (cst.Call() as call, int() as index):
                returned = self._returned(call)
                return frozenset[Root]().union(*(self._of_element(v, index) for v in returned))
        return frozenset()

    def _returned(self, call: cst.Call) -> Sequence[cst.BaseExpression]:
        """Return what the function of a call returns, if no other call in view runs it.

        What several calls run makes another network for each of them.
        """
        callees = self.functions.callees(call)
        function = self.functions.definition(call.func)
        if not isinstance(function, cst.FunctionDef) or callees != (function,):
            return ()
        if self.functions.callers(function) != (call,) or self.functions.is_generator(function):
            return ()
        return self.functions.returns(function)

    def _touch(self, one: Roots, other: Roots) -> bool:
        return any(
            self._contains(a, b, ASSIGNED) or self._contains(b, a, ASSIGNED)
            for a in self._entered(one)
            for b in self._entered(other)
            if a is not None and b is not None
        )

    def _contains(self, outer: Root, inner: Root, depth: int) -> bool:
        """Return whether a network is another one, or has it as a part."""
        if outer is inner or outer == inner:
            return True
        if not depth:
            return False
        owner = outer if isinstance(outer, cst.ClassDef) else None
        if isinstance(outer, cst.Call):
            owner = self.functions.instance_of(outer)
            if not self._is_copy(outer) and any(inner in each for each in self._given(outer)):
                return True
        if owner is None:
            return False
        lines = self.functions.lineage(owner)
        if isinstance(inner, cst.CSTNode) and any(self.tree.inside(inner, each) for each in lines):
            return True
        if isinstance(inner, tuple) and inner[1:] and inner[1] in lines:
            return True
        return isinstance(inner, cst.Call) and any(
            isinstance(self.functions.definition(made.func), cst.ClassDef)
            and self._contains(made, inner, depth - 1)
            for each in lines
            for made in self.tree.within(each, cst.Call)
        )

    @memoized(())
    def _given(self, made: cst.Call) -> tuple[Roots, ...]:
        """Return the networks that a container, or a network made of others, is given."""
        given = [arg.value for arg in made.args]
        holder = self.tree.parent(made)
        for each in holder.targets if isinstance(holder, cst.Assign) else ():
            if isinstance(each.target, (cst.Name, cst.Attribute)):
                given += self.origins.additions(each.target)
        return tuple(frozenset(self._mentioned(value, set())) for value in given)

    # -- what optimizers hold ---------------------------------------------------

    def holders(self, network: cst.BaseExpression) -> tuple[cst.Call, ...]:
        """Return the calls that make the optimizers which may hold parameters of a network."""
        roots = self.roots(network)
        return tuple(
            each.call for each in self._holders if each.updates and self._touch(each.roots, roots)
        )

    def held(self, optimizer: cst.Call) -> Roots:
        """Return what creates the networks whose parameters an optimizer holds."""
        found = [each.roots for each in self._holders if each.call is optimizer]
        return found[0] if found else _UNKNOWN

    def held_alone(self, optimizer: cst.Call, network: cst.BaseExpression) -> bool:
        """Return whether all that an optimizer holds is in sight and does not touch a network."""
        held, roots = self.held(optimizer), self.roots(network)
        return None not in held | roots and not self._touch(held, roots)

    def unheld(self, network: cst.BaseExpression) -> Unheld | None:
        """Return what is known of a network that no optimizer changes; None for any other."""
        roots = self.creators(network)
        if not roots or None in roots:
            return None
        frozen = self._frozen(roots)
        if frozen is not True and (
            not any(each.updates for each in self._holders)
            or any(self._touch(each.roots, roots) for each in self._holders)
        ):
            return None
        overwritten = any(root in self._overwritten for root in roots)
        if not self._are_known and not overwritten and frozen is not True:
            return None
        pretrained = all(map(self.parameters.is_pretrained, roots))
        copied = overwritten or all(map(self._is_copy, roots))
        return Unheld(
            copied,
            frozen,
            all(isinstance(root, cst.Call) for root in roots),
            pretrained,
            copied or pretrained or all(map(self.parameters.are_seen, roots)),
        )

    def may_be_frozen(self, network: cst.BaseExpression) -> bool:
        """Return whether some code may stop parameters of a network from asking for gradients."""
        return self._frozen(self.creators(network)) is not False

    def is_frozen(self, network: cst.BaseExpression) -> bool:
        """Return whether no parameter of a network asks for gradients, by its class or its user."""
        roots = self.creators(network)
        return bool(roots) and self._frozen(roots) is True

    @cached_property
    def _are_known(self) -> bool:
        """Whether the file shows all networks that its optimizers hold."""
        if any(None in each.roots for each in self._holders):
            return False
        made = {each.call for each in self._holders if each.updates}
        stepped = [self.optimizers.loops.stepped(call) for call in self.optimizers.steps]
        origins = [self.origins.of(each) for each in stepped if each is not None]
        return all(each.complete and made.issuperset(each.values) for each in origins)

    @cached_property
    def _holders(self) -> tuple[_Holder, ...]:
        return tuple(self._find_holders())

    def _find_holders(self) -> Iterator[_Holder]:
        for call in self._optimizers:
            given = [arg.value for arg in call.args if arg.keyword is None]
            given += named_arguments(call, "params", "model")
            if (self.names.name(call.func) or "").startswith("torch.optim."):
                given = given[:1]
            seen: set[int] = set()
            roots = frozenset(root for each in given for root in self._mentioned(each, seen))
            yield _Holder(call, roots or _UNKNOWN, updates=True)
        for call in self.tree.all(cst.Call):
            func = call.func
            if self.names.name(func) in _TRAINS:
                given = [arg.value for arg in call.args]
            elif isinstance(func, cst.Attribute) and func.attr.value == "zero_grad":
                if self.kinds.kind(func.value) is not Kind.MODULE:
                    continue
                given = [func.value]
            else:
                continue
            roots = frozenset(
                root for each in given for root in self._of_networks(each) if root is not None
            )
            yield _Holder(call, roots, updates=False)

    def _of_networks(self, node: cst.BaseExpression) -> Iterator[Root]:
        """Yield the roots of the networks whose parameters an expression itself mentions."""
        if self.kinds.kind(node) is Kind.MODULE:
            yield from self.roots(node)
        for call in self.tree.within(node, cst.Call):
            func = call.func
            if isinstance(func, cst.Attribute) and "parameters" in func.attr.value:
                yield from self.roots(func.value)

    @cached_property
    def _optimizers(self) -> tuple[cst.Call, ...]:
        """The calls that make optimizers, also those of other modules."""
        found: dict[cst.Call, None] = {}
        for call in self.tree.all(cst.Call):
            if (self.names.name(call.func) or "").startswith("torch.optim."):
                if self.kinds.kind(call) is Kind.OPTIMIZER:
                    found[call] = None
        for line in self.tree.all(cst.Assign):
            made = line.value
            if not isinstance(made, cst.Call) or made in found:
                continue
            if method_of(made) in PREPARING or isinstance(
                self.functions.callee(made), cst.FunctionDef
            ):
                inner = self.functions.definition(made.func)
                if not isinstance(inner, cst.ClassDef):
                    continue
            target = line.targets[0].target
            each = target.elements if isinstance(target, cst.Tuple) else ()
            for part in (target, *(element.value for element in each)):
                if self.kinds.kind(part) is Kind.OPTIMIZER:
                    found[made] = None
        return tuple(found)

    def _mentioned(self, node: cst.CSTNode, seen: set[int]) -> Iterator[Root]:
        """Yield the roots of all networks that a value may be made from; None if part is unknown.

        It finds too many rather than too few: whatever is mentioned counts as held.
        """
        if id(node) in seen:
            return
        seen.add(id(node))
        if isinstance(node, cst.Lambda):
            return
        if isinstance(node, (cst.Name, cst.Attribute)):
            yield from self._mentioned_name(node, seen)
            return
        if isinstance(node, cst.Call):
            func = node.func
            if self.kinds.kind(node) is Kind.MODULE:
                yield from self.roots(node)
                return
            if isinstance(func, cst.Attribute) and self.names.name(func) is None:
                yield from self._mentioned(func.value, seen)
            function = self.functions.definition(func)
            if isinstance(function, cst.FunctionDef):
                for value in self.functions.returns(function):
                    yield from self._mentioned(value, seen)
            for arg in node.args:
                yield from self._mentioned(arg.value, seen)
            return
        for child in self.tree.children(node):
            yield from self._mentioned(child, seen)

    def _mentioned_name(self, node: cst.Name | cst.Attribute, seen: set[int]) -> Iterator[Root]:
        if self.names.name(node) is not None or dotted(node) in _CONSTANTS:
            return
        bindings = self.functions.bindings(node)
        if isinstance(node, cst.Attribute) and not bindings:
            yield from self._mentioned(node.value, seen)
            if dotted(node).startswith("self."):
                yield from self.roots(node)
            return
        if self.kinds.kind(node) is Kind.MODULE:
            yield from self.roots(node)
            return
        if not bindings:
            yield None
        for added in self.origins.additions(node):
            yield from self._mentioned(added, seen)
        for binding in bindings:
            yield from self._mentioned_binding(binding, seen)

    def _mentioned_binding(self, binding: Binding, seen: set[int]) -> Iterator[Root]:
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            owner = self.functions.owner_of_self(binding.node)
            given = self.functions.given(binding.node)
            if owner is not None:
                yield owner
            elif not given or self.functions.given_unseen(binding.node):
                yield None
            for each in given:
                yield from self._mentioned(each, seen)
        elif binding.value is not None:
            yield from self._mentioned(binding.value, seen)

    # -- copies -----------------------------------------------------------------

    def _is_copy(self, root: Root) -> bool:
        if not isinstance(root, cst.Call) or not root.args:
            return False
        name = self.names.name(root.func)
        if name not in _COPIES and name not in _AVERAGES:
            return False
        return self.kinds.kind(root.args[0].value) is Kind.MODULE

    @cached_property
    def _overwritten(self) -> Roots:
        """The networks whose weights other networks overwrite."""
        return frozenset(self._find_overwritten()) - {None}

    def _find_overwritten(self) -> Iterator[Root]:
        for asked in self.functions.attributes("load_state_dict"):
            call = self.tree.parent(asked)
            given = call.args[0].value if isinstance(call, cst.Call) and call.args else None
            if not isinstance(given, cst.Call) or not isinstance(given.func, cst.Attribute):
                continue
            if given.func.attr.value == "state_dict":
                source, mine = self.roots(given.func.value), self.roots(asked.value)
                if None not in source and not source & mine:
                    yield from mine
        for loop in self.tree.all(cst.For):
            yield from self._overwritten_in(loop)

    def _overwritten_in(self, loop: cst.For) -> Iterator[Root]:
        """Yield the networks whose parameters a loop over those of two networks overwrites."""
        drawn = loop.iter
        if not isinstance(drawn, cst.Call) or self.names.name(drawn.func) != "builtins.zip":
            return
        target = loop.target
        if not isinstance(target, cst.Tuple) or len(target.elements) != len(drawn.args):
            return
        written = {dotted(each).removesuffix(".data") for each in self._written(loop)}
        for element, arg in zip(target.elements, drawn.args, strict=True):
            part = element.value
            while isinstance(part, cst.Tuple) and part.elements:
                part = part.elements[-1].value
            if dotted(part) in written:
                yield from self._of_networks(arg.value)

    def _written(self, loop: cst.For) -> Iterator[cst.BaseExpression]:
        for call in self.tree.within(loop.body, cst.Call):
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value in _OVERWRITES:
                if ".grad" not in self.tree.code(call):
                    yield func.value
        for line in self.tree.within(loop.body, cst.Assign):
            target = line.targets[0].target
            if isinstance(target, cst.Attribute) and target.attr.value == "data":
                if ".grad" not in self.tree.code(line.value):
                    yield target

    # -- frozen ---------------------------------------------------------------

    def _frozen(self, roots: Roots) -> bool | None:
        """Return whether networks ask for no gradients; None if they may not."""
        if all(map(self._is_surely_frozen, roots)):
            return True
        return None if self._touch(self._maybe_frozen, roots) else False

    @cached_property
    def _maybe_frozen(self) -> Roots:
        found: set[Root] = set()
        for freeze in self.freezing.all:
            if freeze.learns is not True:
                found.update(self._mentioned(_owner(freeze), set()))
        for call in self.tree.all(cst.Call):
            last = dotted(call.func).rpartition(".")[2]
            if not _FREEZING.isdisjoint(words(last)):
                for arg in call.args:
                    found.update(self._mentioned(arg.value, set()))
        return frozenset(found) - {None}

    def _is_surely_frozen(self, root: Root) -> bool:
        owner = self.functions.instance_of(root) if isinstance(root, cst.Call) else root
        if root in self._surely_frozen or not isinstance(owner, cst.ClassDef):
            return root in self._surely_frozen
        thaws = (each for each in self.freezing.all if each.learns is not False)
        return self.freezing.freezes_itself(owner) and not any(
            self._touch(frozenset(self._frozen_network(each)), frozenset({root})) for each in thaws
        )

    @cached_property
    def _surely_frozen(self) -> Roots:
        found: set[Root] = set()
        thawed: set[Root] = set()
        for freeze in self.freezing.all:
            if freeze.learns is True:
                thawed |= self._frozen_network(freeze)
            elif freeze.learns is False and not freeze.partial:
                mine = self._frozen_network(freeze)
                found |= mine if len(mine) == 1 else set()
            elif freeze.learns is None:
                found |= set(self._frozen_by_calls(freeze))
        for network, learns in self.freezing.by_method():
            (thawed if learns else found).update(self.roots(network))
        return frozenset(found - thawed) - {None}

    def _frozen_network(self, freeze: Freeze) -> set[Root]:
        """Return the roots of the network that a line freezes."""
        owner = _owner(freeze)
        binding = self.scopes.only(owner)
        if binding.how is How.LOOP and binding.value is not None:
            return set(self._of_networks(binding.value))
        return set(self.roots(owner))

    def _frozen_by_calls(self, freeze: Freeze) -> Iterator[Root]:
        """Yield the networks that calls of a helper with a flag freeze."""
        function = self.scopes.function(freeze.node)
        node = freeze.node
        flag = node.value if isinstance(node, cst.Assign) else None
        if isinstance(node, cst.Call) and node.args:
            flag = node.args[0].value
        if function is None or not isinstance(flag, cst.Name):
            return
        for call in self.functions.callers(function):
            given = self.functions.passed(call, function, flag.value)
            network = self.functions.passed(call, function, freeze.path.partition(".")[0])
            off = isinstance(given, cst.Name) and given.value == "False"
            if off and network is not None:
                yield from self.roots(network)


def _owner(freeze: Freeze) -> cst.BaseExpression:
    """Return what a line that sets `requires_grad` sets it of."""
    node = freeze.node
    target = node.func if isinstance(node, cst.Call) else node.targets[0].target
    return cst.ensure_type(target, cst.Attribute).value
