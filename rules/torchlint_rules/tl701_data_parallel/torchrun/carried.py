"""Values that leave the training loop: each is reduced over all processes, or is an obstacle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import libcst as cst

from torchlint.api import Binding, How, Kind, Script, Share, Shares, method_of, receiver_of, root_of
from torchlint_rules.tl701_data_parallel.torchrun.meters import Meter, meter_of
from torchlint_rules.tl701_data_parallel.torchrun.output import writes
from torchlint_rules.tl701_data_parallel.torchrun.shape import ObstacleError, Shape, reads
from torchlint_rules.tl701_data_parallel.torchrun.shows import shows

_EQUAL: Final = (Share.SAME, Share.NOTHING)
_ADDS_UP: Final = (Share.SUM, Share.SIZE)
_KEEPS_NOTHING: Final = frozenset(
    "backward step scale unscale_ zero_grad close cuda to item register_hook retain_grad".split()
)
_COLLECTS: Final = frozenset("append extend update add insert put appendleft".split())
_NOT_A_SUM: Final = "is made of one process's samples and does not add up over the processes"
_TWICE: Final = "adds up over several runs of the loop: begin it at 0 just before the loop"
_PARTS: Final = (Kind.MODULE, Kind.OPTIMIZER, Kind.SCALER, Kind.CRITERION)
_LEAVING: Final = (cst.Break, cst.Continue, cst.Return, cst.Raise)


@dataclass
class Carried:
    """Finds the lines after the training loop that reduce its numbers over all processes."""

    script: Script
    shape: Shape
    lines: list[str] = field(default_factory=list)

    def find(self) -> list[str]:
        """Return the lines; raises `ObstacleError` if a number of one process would be used."""
        self._names()
        self._calls()
        self._objects()
        self._stores()
        self._called()
        self._returns()
        self._choices()
        self._ratios()
        return list(dict.fromkeys(self.lines))

    @property
    def loop(self) -> cst.CSTNode:
        """The training loop."""
        return self.shape.batches.node

    @property
    def shares(self) -> Shares:
        """How the numbers of the loop are reduced."""
        return self.script.program.shares(self.shape.batches)

    # -- names ----------------------------------------------------------------

    def _names(self) -> None:
        found: dict[str, list[Binding]] = {}
        for binding in self.script.scopes.bindings():
            if self._in_loop(binding) and "." not in binding.name:
                found.setdefault(binding.name, []).append(binding)
        for name, bindings in found.items():
            shares = {binding: self.shares.bound(binding) for binding in bindings}
            local = [each for each in bindings if shares[each] not in _EQUAL]
            reads = [read for each in local for read in self._read_outside(each)]
            if reads:
                self._carry(name, bindings, [shares[each] for each in bindings], reads)

    def _in_loop(self, binding: Binding) -> bool:
        script = self.script
        if binding.how in (How.PARAMETER, How.IMPORT, How.FUNCTION, How.CLASS):
            return False
        if isinstance(binding.node, cst.CompFor) or not script.tree.inside(binding.node, self.loop):
            return False
        return script.scopes.home(binding.node) is script.scopes.home(self.loop)

    def _read_outside(self, binding: Binding) -> list[cst.Name]:
        tree = self.script.tree
        readers = self.script.scopes.readers(binding)
        return [read for read in readers if not tree.inside(read, self.loop)]

    def _carry(
        self,
        name: str,
        bindings: Sequence[Binding],
        shares: Sequence[Share],
        reads: Sequence[cst.Name],
    ) -> None:
        """Reduce over all processes a name that is read after the loop."""
        share = _joined(shares)
        if share is None:
            worst = _worst(bindings, shares)
            raise ObstacleError(
                self.script.tree.smallest_statement(worst.node), f"`{name}` {_NOT_A_SUM}"
            )
        for read in reads:
            if any(self.script.tree.inside(read, sent) for sent in self._sent()):
                raise ObstacleError(read, "it is sent backward behind the loop")
        adds = any(
            each.how is How.AUGMENTED
            or (each.value is not None and name in self._words(each.value))
            for each in bindings
        )
        if share is Share.SUM and adds and not self._begins_at_zero(name):
            raise ObstacleError(
                self.script.tree.smallest_statement(bindings[0].node), f"`{name}` {_TWICE}"
            )
        self._sum(name, share)

    def _sent(self) -> tuple[cst.BaseExpression, ...]:
        return self.script.values.kinds.losses.values

    def _words(self, node: cst.CSTNode) -> set[str]:
        return {name.value for name in self.script.tree.within(node, cst.Name)}

    def _begins_at_zero(self, name: str) -> bool:
        begun = self.script.program.begun(name, self.shape.batches)
        return begun is not None and self.shares.begins(begun)

    def _sum(self, text: str, share: Share) -> None:
        mean = " / WORLD_SIZE" if share is Share.MEAN else ""
        self.lines.append(f"{text} = sum_over_ranks({text}){mean}")

    # -- lists, meters and other arguments ------------------------------------

    def _calls(self) -> None:
        meters: dict[str, Meter] = {}
        for line in self.script.functions.own(self._body(), cst.Expr):
            call = line.value
            if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
                continue
            root = _root(call.func.value)
            chosen = self.shares.chosen(call) and call.func.attr.value in _COLLECTS
            if not self._takes_local(call) and not chosen:
                continue
            if self._is_harmless(call, root):
                continue
            meter = meter_of(self.script, self.shares, call)
            if meter is not None and isinstance(call.func.value, cst.Name):
                known = meters.setdefault(root.value, meter) if root is not None else meter
                if known is not meter:
                    known.join(meter)
                continue
            if root is None or self._read_later(root):
                self._collect(call, root)
        for name, meter in meters.items():
            self._meter(name, meter)

    def _body(self) -> cst.CSTNode:
        return self.shape.batches.node.body

    def _takes_local(self, call: cst.Call) -> bool:
        return any(self.shares.is_local(arg.value) for arg in call.args)

    def _is_harmless(self, call: cst.Call, root: cst.Name | None) -> bool:
        """Return whether a call shows its arguments, or stores nothing of them."""
        site = self.script.calls.at(call)
        if site.method == "step" and self._is_scheduler(site.receiver):
            raise ObstacleError(call, "it depends on one process's samples, but all must agree")
        if shows(self.script, call) or site.method in _KEEPS_NOTHING:
            return True
        if self.script.kind(site.receiver) in _PARTS:
            return True
        return root is not None and self._made_here(root)

    def _made_here(self, root: cst.Name) -> bool:
        """Return whether the loop itself computes the value of a name."""
        return any(
            self.script.tree.inside(binding.node, self.loop)
            for binding in self.script.scopes.reaching(root)
        )

    def _objects(self) -> None:
        """Refuse objects of other files that may store their arguments."""
        script = self.script
        for call in script.functions.own(self._body(), cst.Call):
            root = _root(call.func)
            statement = isinstance(script.tree.parent(call), cst.Expr)
            if root is None or (statement and method_of(call)):
                continue
            if not self._takes_local(call) or self._keeps_nothing(call, root):
                continue
            if self._read_later(root):
                raise ObstacleError(call, f"what it keeps {_NOT_A_SUM}")

    def _keeps_nothing(self, call: cst.Call, root: cst.Name) -> bool:
        script = self.script
        if script.name(call.func) is not None or script.functions.callee(call) is not None:
            return True
        held = {binding.how for binding in script.scopes.reaching(root)}
        if not held or held & {How.IMPORT, How.FUNCTION, How.CLASS} or self._made_here(root):
            return True
        if shows(script, call) or script.kind(call) is Kind.LOSS:
            return True
        owner = receiver_of(call)
        if method_of(call) in _KEEPS_NOTHING:
            return True
        if owner is not None and script.kind(owner) in _PARTS:
            return True
        if script.kind(call.func) in _PARTS or script.loops.module_call(call) is not None:
            return True
        sent = script.values.kinds.losses.sent_backward
        return any(sent([each]) for each in script.scopes.bindings() if each.value is call)

    def _is_scheduler(self, node: cst.CSTNode) -> bool:
        return self.script.kind(node) is Kind.SCHEDULER

    def _collect(self, call: cst.Call, root: cst.Name | None) -> None:
        """Reduce a list of numbers over all processes; any other list is an obstacle."""
        func = call.func
        assert isinstance(func, cst.Attribute)
        value = call.args[0].value if call.args else call
        share = self.shares.share(value)
        plain = isinstance(func.value, cst.Name) and func.attr.value == "append"
        together = isinstance(value, (cst.Tuple, cst.List, cst.Dict))
        if not plain or root is None or together or self.shares.chosen(call):
            raise ObstacleError(call, f"what it keeps {_NOT_A_SUM}")
        if share not in (*_ADDS_UP, Share.MEAN):
            raise ObstacleError(call, f"what it keeps {_NOT_A_SUM}")
        name = root.value
        if not self._begins_at_zero(name):
            raise ObstacleError(call, "it keeps numbers of one process's samples across epochs")
        mean = " / WORLD_SIZE" if share is Share.MEAN else ""
        line = f"{name} = [sum_over_ranks(each){mean} for each in {name}]"
        if any(other != line and other.startswith(f"{name} =") for other in self.lines):
            raise ObstacleError(call, f"what it keeps {_NOT_A_SUM}")
        self.lines.append(line)

    def _meter(self, name: str, meter: Meter) -> None:
        """Reduce the fields of a meter over all processes."""
        root = _root(meter.call.func)
        if root is None or not self._read_later(root):
            return
        if meter.strange:
            raise ObstacleError(meter.call, f"what it keeps {_NOT_A_SUM}")
        if Share.SUM in meter.fields.values() and not self._begins_anew(name):
            raise ObstacleError(meter.call, f"`{name}` {_TWICE}")
        for attribute, share in meter.fields.items():
            if share not in _EQUAL:
                self._sum(f"{name}.{attribute}", share)
        for attribute, share in meter.last.items():
            if share not in _EQUAL and self._field_read(name, attribute):
                self._sum(f"{name}.{attribute}", share)
        self.lines += [f"{name}.{to} = {code}" for to, code in meter.derived(name)]

    def _field_read(self, name: str, attribute: str) -> bool:
        found = reads(self.script.tree.all(cst.Attribute), name, attribute)
        return any(not self.script.tree.inside(each, self.loop) for each in found)

    def _begins_anew(self, name: str) -> bool:
        """Return whether a meter is created, or reset, in the iteration that runs the loop."""
        if self.script.program.begun(name, self.shape.batches) is not None:
            return True
        for site in self.script.calls.of_methods("reset"):
            meter = site.receiver
            if isinstance(meter, cst.Name) and meter.value == name and self._leads_in(site.node):
                return True
        return False

    def _leads_in(self, node: cst.CSTNode) -> bool:
        """Return whether each iteration that runs the loop runs a node before it."""
        script = self.script
        home = script.scopes.blocks(node)
        near = next(script.loops.around(self.loop), None)
        return (
            script.tree.order(node) < script.tree.order(self.loop)
            and bool(home)
            and home[0] in script.scopes.blocks(self.loop)
            and next(script.loops.around(node), None) is near
        )

    def _read_later(self, root: cst.Name) -> bool:
        """Return whether a name's value is read outside the loop, except to start or end it."""
        script = self.script
        bindings = script.scopes.reaching(root)
        if any(binding.how is How.PARAMETER for binding in bindings) or not bindings:
            return True
        begins = script.tree.order(self.loop)
        epochs = self.shape.epochs
        for binding in bindings:
            for read in script.scopes.readers(binding):
                if script.tree.inside(read, self.loop) or self._only_begins(read):
                    continue
                again = epochs is not None and script.tree.inside(read, epochs)
                elsewhere = script.scopes.home(read) is not script.scopes.home(self.loop)
                if script.tree.order(read) > begins or again or elsewhere:
                    return True
        return False

    def _only_begins(self, read: cst.Name) -> bool:
        """Return whether a use calls a method and ignores its result: `bar.close()`."""
        attribute = self.script.tree.parent(read)
        call = self.script.tree.parent(attribute) if isinstance(attribute, cst.Attribute) else None
        if not isinstance(call, cst.Call) or call.func is not attribute:
            return False
        return isinstance(self.script.tree.parent(call), cst.Expr)

    # -- attributes and items -------------------------------------------------

    def _stores(self) -> None:
        script = self.script
        found: dict[str, list[tuple[cst.CSTNode, Share]]] = {}
        for target, value, adds in self._targets(self._body()):
            share = self.shares.share(value)
            root = _root(target)
            if self.shares.chosen(target) or self._picks(target):
                share = Share.OWN
            if share in _EQUAL or root is None or self._made_here(root):
                continue
            if not self._read_later(root):
                continue
            if adds and share is Share.SIZE:
                share = Share.SUM
            found.setdefault(script.code(target), []).append((target, share))
            if share not in (*_ADDS_UP, Share.MEAN) or not _is_fixed(target):
                line = script.tree.smallest_statement(target)
                raise ObstacleError(line, f"`{script.code(target)}` {_NOT_A_SUM}")
            if share is not Share.MEAN and adds and not self._stored_zero(target):
                line = script.tree.smallest_statement(target)
                raise ObstacleError(line, f"`{script.code(target)}` {_TWICE}")
        for text, kept in found.items():
            share_of = _joined([share for _, share in kept])
            if share_of is None:
                line = script.tree.smallest_statement(kept[-1][0])
                raise ObstacleError(line, f"`{text}` {_NOT_A_SUM}")
            self._sum(text, share_of)

    def _picks(self, target: cst.CSTNode) -> bool:
        """Return whether the samples select the item that is assigned."""
        return any(
            self.shares.is_local(name)
            for item in self.script.tree.within(target, cst.SubscriptElement)
            for name in self.script.tree.within(item, cst.Name)
        )

    def _targets(
        self, body: cst.CSTNode
    ) -> Iterator[tuple[cst.Attribute | cst.Subscript, cst.BaseExpression, bool]]:
        """Yield the attributes and items that code assigns, with the values."""
        own = self.script.functions.own
        for assign in own(body, cst.Assign):
            for target in assign.targets:
                if isinstance(target.target, (cst.Attribute, cst.Subscript)):
                    yield target.target, assign.value, False
                elif isinstance(target.target, (cst.Tuple, cst.List)):
                    for element in target.target.elements:
                        if isinstance(element.value, (cst.Attribute, cst.Subscript)):
                            yield element.value, assign.value, False
        for augmented in own(body, cst.AugAssign):
            if isinstance(augmented.target, (cst.Attribute, cst.Subscript)):
                yield augmented.target, augmented.value, True

    def _stored_zero(self, target: cst.Attribute | cst.Subscript) -> bool:
        """Return whether the iteration that runs the loop sets an attribute or item to zero."""
        script, text = self.script, self.script.code(target)
        root = _root(target)
        begun = script.program.begun(root.value, self.shape.batches) if root is not None else None
        if isinstance(begun, cst.Dict) and isinstance(target, cst.Subscript):
            key = target.slice[0].slice
            for element in begun.elements:
                if isinstance(element, cst.DictElement) and isinstance(key, cst.Index):
                    if script.code(element.key) == script.code(key.value):
                        return self.shares.begins(element.value)
        return any(
            any(script.code(each.target) == text for each in assign.targets)
            and self.shares.begins(assign.value)
            and self._leads_in(assign)
            for assign in script.tree.all(cst.Assign)
        )

    # -- functions that the loop runs -----------------------------------------

    def _called(self) -> None:
        """Refuse functions of this file that store what one process computes from its samples."""
        script = self.script
        for call in script.functions.own(self._body(), cst.Call):
            callee = script.functions.callee(call)
            if callee is None or not self._takes_local(call):
                continue
            if script.loops.module_call(call) is not None or meter_of(script, self.shares, call):
                continue
            if script.kind(call.func) is Kind.CRITERION:
                continue
            share = self.shares.called(call, callee)
            for target, value, _ in self._targets(callee.body):
                root = _root(target)
                if share(value) not in _EQUAL and not self._made_in(root, callee):
                    line = script.tree.smallest_statement(target)
                    raise ObstacleError(line, f"what it keeps {_NOT_A_SUM}")
            self._refuse_outward(callee, share)

    def _refuse_outward(self, callee: cst.FunctionDef, share: object) -> None:
        script = self.script
        assert callable(share)
        outward = script.scopes.scope_at(callee).outward
        for binding in script.scopes.bindings():
            if binding.name in outward and script.scopes.function(binding.node) is callee:
                if binding.value is not None and share(binding.value) not in _EQUAL:
                    line = script.tree.smallest_statement(binding.node)
                    raise ObstacleError(line, f"`{binding.name}` {_NOT_A_SUM}")
        for inner in script.functions.own(callee.body, cst.Call):
            owner = receiver_of(inner, *_COLLECTS)
            if owner is None:
                continue
            root = _root(owner)
            if self._made_in(root, callee) or shows(script, inner):
                continue
            if any(share(arg.value) not in _EQUAL for arg in inner.args):
                raise ObstacleError(inner, f"what it keeps {_NOT_A_SUM}")

    def _made_in(self, root: cst.Name | None, callee: cst.FunctionDef) -> bool:
        """Return whether a name is assigned in a function and is not a parameter."""
        if root is None:
            return False
        bindings = self.script.scopes.reaching(root)
        return bool(bindings) and all(
            binding.how is not How.PARAMETER and self.script.scopes.function(binding.node) is callee
            for binding in bindings
        )

    # -- decisions by the samples of one process ------------------------------

    def _returns(self) -> None:
        for leave in self.script.functions.own(self._body(), cst.Return):
            if leave.value is not None and self.shares.is_local(leave.value):
                raise ObstacleError(leave, f"what it returns {_NOT_A_SUM}")

    def _choices(self) -> None:
        script = self.script
        own = script.functions.own
        branches: list[cst.If | cst.While] = [
            *own(self._body(), cst.If),
            *own(self._body(), cst.While),
        ]
        for branch in branches:
            if not self.shares.is_local(branch.test):
                continue
            parts = [branch.body, *([branch.orelse] if branch.orelse is not None else [])]
            if any(self._matters(part) for part in parts):
                raise ObstacleError(
                    branch.test, "it depends on one process's samples, but all must agree"
                )
        for call in own(self._body(), cst.Call):
            if writes(script, call) and self._takes_local(call):
                raise ObstacleError(call, "it would write what one process made of its samples")

    def _matters(self, part: cst.CSTNode) -> bool:
        """Return whether processes diverge if only some of them run some code."""
        script = self.script
        if any(next(script.tree.within(part, kind), None) is not None for kind in _LEAVING):
            return True
        calls = list(script.tree.within(part, cst.Call))
        return script.loops.runs_module(part) or any(
            script.loops.is_step(call) or writes(script, call) or method_of(call) == "step"
            for call in calls
        )

    def _ratios(self) -> None:
        """Refuse to divide a sum of one process by a count of all."""
        script = self.script
        for node in script.functions.own(self._body(), cst.BinaryOperation):
            if not isinstance(node.operator, cst.Divide):
                continue
            number = next(script.tree.within(node.right, cst.Name), None) is None
            if number or self.shares.share(node.left) is not Share.SUM:
                continue
            if self.shares.share(node.right) is Share.SAME:
                why = "it divides a sum over one process's samples by a number that is for all"
                raise ObstacleError(node, why)


def _root(node: cst.CSTNode) -> cst.Name | None:
    """Return the name at the left end of attributes and items."""
    root = root_of(node, items=True)
    return root if isinstance(root, cst.Name) else None


def _is_fixed(node: cst.BaseExpression) -> bool:
    """Return whether an attribute or item never changes: `state["loss"]`, `self.total`."""
    if isinstance(node, cst.Name):
        return True
    if isinstance(node, cst.Attribute):
        return _is_fixed(node.value)
    if not isinstance(node, cst.Subscript) or len(node.slice) != 1:
        return False
    key = node.slice[0].slice
    literal = isinstance(key, cst.Index) and isinstance(key.value, (cst.SimpleString, cst.Integer))
    return literal and _is_fixed(node.value)


def _joined(shares: Sequence[Share]) -> Share | None:
    """Return how several values of one name are reduced, None if they cannot be."""
    found = {Share.SUM if share is Share.SIZE else share for share in shares}
    found.discard(Share.NOTHING)
    if found <= {Share.MEAN, Share.SAME}:
        return Share.MEAN
    return Share.SUM if found == {Share.SUM} else None


def _worst(bindings: Sequence[Binding], shares: Sequence[Share]) -> Binding:
    """Return the binding that prevents a sum."""
    for binding, share in zip(bindings, shares, strict=True):
        if share not in (*_EQUAL, *_ADDS_UP, Share.MEAN):
            return binding
    return bindings[-1]
