"""Freezing: which parts of a network are frozen, and where they are unfrozen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.calls.instances import SAME
from torchlint.semantic.scope.bindings import holds
from torchlint.semantic.scope.limits import ASSIGNED
from torchlint.semantic.scope.scopes import How, dotted
from torchlint.semantic.syntax.methods import container_of, receiver_of
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import ValueAnalysis


class Freeze(NamedTuple):
    """One place that sets `requires_grad`.

    `path` is the dotted path to the network or its part; `learns` is True if it is unfrozen, None
    if a value decides; `partial` means that only some of its parameters are set.
    """

    node: cst.Assign | cst.Call
    path: str
    learns: bool | None
    partial: bool


class _Seen(NamedTuple):
    """A freeze as seen from the function around an optimizer."""

    freeze: Freeze
    path: str
    at: int | None
    """Its rank in that function; 0 if it happens before the start, None if unknown."""


_PARAMETERS: Final = frozenset("parameters named_parameters".split())
_PARTS: Final = frozenset("children modules named_children named_modules values items".split())
_WEIGHTLESS: Final = re.compile(
    r"torch\.nn\.(?:\w*Pool\w*|\w*ReLU\w*|GELU|SiLU|Tanh|Sigmoid|Softmax|\w*Dropout\w*|\w*Pad\w*|"
    r"Flatten|Identity|Upsample|\w+Loss)"
)


class Freezing(ValueAnalysis):
    """Finds what is frozen, as seen from the place where an optimizer is created."""

    @cached_property
    def all(self) -> tuple[Freeze, ...]:
        """Every place that sets `requires_grad` of parameters of a network."""
        return tuple(self._all())

    def _all(self) -> Iterator[Freeze]:
        for line in self.tree.all(cst.Assign):
            target = line.targets[0].target
            if isinstance(target, cst.Attribute) and target.attr.value == "requires_grad":
                if self.kinds.kind(target.value) is Kind.MODULE:
                    continue  # a network has no such switch, so the line only names an attribute
                learns = self._truth(line.value)
                some = learns is None and isinstance(
                    line.value, (cst.Comparison, cst.UnaryOperation)
                )
                yield from self._freeze(line, target.value, False if some else learns, some)
        for call in self.tree.all(cst.Call):
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value == "requires_grad_":
                given = self.values.argument_node(call, "requires_grad", 0)
                learns = True if given is None else self._truth(given.value)
                yield from self._freeze(call, func.value, learns, False)

    def _truth(self, value: cst.BaseExpression) -> bool | None:
        found = self.values.value_of(value).literal
        return found if isinstance(found, bool) else None

    def _freeze(
        self,
        node: cst.Assign | cst.Call,
        owner: cst.BaseExpression,
        learns: bool | None,
        some: bool,
    ) -> Iterator[Freeze]:
        found = self._part(owner, node, 0)
        if found is not None:
            yield Freeze(node, found[0], learns, found[1] or some)

    def _part(
        self, owner: cst.BaseExpression, site: cst.CSTNode, depth: int
    ) -> tuple[str, bool] | None:
        """Return the path of the network part in an expression, and whether it is partial."""
        if depth > ASSIGNED:
            return None
        if isinstance(owner, cst.Name):
            bindings = self.scopes.reaching(owner)
            if bindings and all(each.how is How.LOOP for each in bindings):
                value = bindings[-1].value
                return self._looped(value, site, depth) if value is not None else None
            alias = self.values.value_of(owner).node
            if isinstance(alias, cst.Attribute) and dotted(alias):
                return dotted(alias), False
        if receiver_of(owner, "state_dict") is not None:
            return None  # its tensors are detached, so nothing is set for the network
        path, some = dotted(owner), False
        while not path and isinstance(owner, cst.Subscript):
            owner, some = owner.value, True
            path = dotted(owner)
        if not path and self._is_new(owner):
            target = self._target(site)
            return (target, False) if target else None
        if not path and isinstance(owner, cst.Call) and isinstance(owner.func, cst.Attribute):
            # `model.get_classifier()` returns a part of the network.
            path, some = dotted(owner.func.value), True
        if not path:
            return None
        is_part = path.count(".") > (1 if path.startswith("self.") else 0)
        if depth or is_part or self.kinds.kind(owner) is Kind.MODULE:
            return path, some
        return None

    def _is_new(self, owner: cst.BaseExpression) -> bool:
        """Return whether an expression makes a network: `AutoModel.from_pretrained("x").cuda()`."""
        while (inner := receiver_of(owner, *SAME)) is not None:
            owner = inner
        made = isinstance(owner, cst.Call) and self.names.name(owner.func) is not None
        return made and self.kinds.kind(owner) is Kind.MODULE

    def _target(self, site: cst.CSTNode) -> str:
        """Return the path that a statement assigns a network to, which it also freezes."""
        line = next((x for x in self.tree.ancestors(site) if isinstance(x, cst.Assign)), None)
        return dotted(line.targets[0].target) if line is not None else ""

    def _looped(
        self, value: cst.BaseExpression, site: cst.CSTNode, depth: int
    ) -> tuple[str, bool] | None:
        for call in self.tree.within(value, cst.Call):
            func = call.func
            if not isinstance(func, cst.Attribute):
                continue
            method = func.attr.value
            if method not in _PARAMETERS and method not in _PARTS:
                continue
            found = self._part(func.value, site, depth + 1)
            if found is None:
                return None
            cut = any(True for _ in self.tree.within(value, cst.Subscript))
            return found[0], found[1] or cut or method in _PARTS or self._guarded(site, value)
        return self._part(value, site, depth + 1) if not isinstance(value, cst.Call) else None

    def _guarded(self, site: cst.CSTNode, value: cst.CSTNode) -> bool:
        """Return whether an `if` inside the loop over `value` selects what is set."""
        for outer in self.tree.ancestors(site):
            if isinstance(outer, cst.If):
                return True
            if isinstance(outer, cst.For) and self.tree.inside(value, outer.iter):
                return False
        return False

    # -- as a network does it itself ------------------------------------------------------

    def freezes_itself(self, owner: cst.ClassDef) -> bool:
        """Return whether a network freezes, while it is made, all weights that it makes."""
        lines = self.functions.lineage(owner)
        inside = [
            each for each in self.all if any(self.tree.inside(each.node, line) for line in lines)
        ]
        if not inside or any(each.learns is not False for each in inside):
            return False
        last: dict[str, int] = {}
        for each in inside:
            sure = not (each.partial or self._is_chosen(each.node))
            if sure and self._in_own_class(each.node) == 0:
                last[each.path] = self.tree.order(each.node)
        made = [each for line in lines for each in self._parts_made(line)]
        return bool(made) and all(
            max(last.get(path, 0), last.get("self", 0)) > at for path, at in made
        )

    def by_method(self) -> Iterator[tuple[cst.BaseExpression, bool]]:
        """Yield the networks whose own method sets all their weights, and whether they learn."""
        for each in self.all:
            function = self.scopes.function(each.node)
            if each.path != "self" or each.learns is None or function is None:
                continue
            for call in self.functions.callers(function):
                sure = not (each.partial or self._is_chosen(each.node) or self._is_chosen(call))
                if isinstance(call.func, cst.Attribute) and (each.learns or sure):
                    yield call.func.value, each.learns

    def _is_chosen(self, node: cst.CSTNode) -> bool:
        """Return whether a condition decides if a node runs."""
        return any(isinstance(outer, (cst.If, cst.IfExp)) for outer in self.tree.ancestors(node))

    def _parts_made(self, owner: cst.ClassDef) -> Iterator[tuple[str, int]]:
        """Yield the attributes to which a class assigns what may have weights, with their ranks."""
        for line in self.tree.within(owner, cst.Assign):
            path = dotted(line.targets[0].target)
            if not path.startswith("self.") or path.count(".") > 1:
                continue
            made = line.value
            name = self.values.names.name(made.func) if isinstance(made, cst.Call) else None
            if name is not None and _WEIGHTLESS.fullmatch(name):
                continue
            if self.kinds.kind(made) is Kind.MODULE or name == "torch.nn.Parameter":
                yield path, self.tree.order(line)

    def is_frozen_at(self, network: cst.BaseExpression) -> bool:
        """Return whether the function around a use has frozen all of the network before."""
        path, home, order = dotted(network), self.scopes.home(network), self.tree.order
        here = (each for each in self.all if self.scopes.home(each.node) is home)
        mine = [each for each in here if each.path == path and order(each.node) < order(network)]
        last = max(mine, key=lambda each: order(each.node), default=None)
        if last is None or last.partial or any(self.tree.branches(last.node)):
            return False
        return last.learns is False

    # -- as an optimizer sees it ------------------------------------------------------

    def frozen(self, network: cst.BaseExpression, place: cst.CSTNode) -> Freeze | None:
        """Return what freezes part of a network before a place and is never undone.

        Its path is relative to the function around the place.
        """
        whole = _plain(dotted(network))
        if not whole:
            return None
        seen = [each for freeze in self.all for each in self._seen(freeze, network, whole, place)]
        here = self.tree.order(place)
        for each in seen:
            if each.freeze.learns is not False and (each.at is None or each.at > here):
                return None
        for each in seen:
            if each.freeze.learns is not False or each.at is None or each.at > here:
                continue
            if not holds(whole, each.path) or self._is_elsewise(each.freeze.node, place):
                continue
            if not self._is_undone(each, seen) and self._leaves_some(each, seen, whole, place):
                return each.freeze._replace(path=each.path)
        return None

    def _is_elsewise(self, node: cst.CSTNode, place: cst.CSTNode) -> bool:
        """Return whether two nodes are in different branches of a test."""
        code = self.tree.code
        choices = {code(each.test): taken for each, taken in self.tree.branches(node)}
        return any(
            choices.get(code(each.test), taken) != taken
            for each, taken in self.tree.branches(place)
        )

    def _is_undone(self, freeze: _Seen, seen: list[_Seen]) -> bool:
        return any(
            other.freeze.learns is not False
            and not other.freeze.partial
            and self._rank(other) > self._rank(freeze)
            and holds(other.path, freeze.path)
            for other in seen
        )

    def _rank(self, seen: _Seen) -> tuple[int, int]:
        return seen.at or 0, self.tree.order(seen.freeze.node)

    def _leaves_some(
        self, freeze: _Seen, seen: list[_Seen], whole: str, place: cst.CSTNode
    ) -> bool:
        """Return whether some part of the network still learns."""
        if freeze.freeze.partial or freeze.path != whole:
            return True
        after = freeze.at or 0
        if any(
            other.freeze.learns is not False and self._rank(other) > self._rank(freeze)
            for other in seen
        ):
            return True
        owner = self.scopes.class_of(freeze.freeze.node)
        for line in self.tree.all(cst.Assign):
            target: cst.BaseExpression = line.targets[0].target
            path = _plain(dotted(container_of(target)))
            if after and path.startswith(f"{whole}.") and self.tree.order(line) > after:
                if self.scopes.home(line) is self.scopes.home(place):
                    return True
            inside = owner is not None and self.tree.inside(line, owner)
            if not after and inside and path.startswith("self."):
                if self.tree.order(line) > self.tree.order(freeze.freeze.node):
                    return True
        return False

    def _seen(
        self, freeze: Freeze, network: cst.BaseExpression, whole: str, place: cst.CSTNode
    ) -> Iterator[_Seen]:
        """Yield how a freeze looks from the function around a place, if it may affect a network."""
        home, own = self.scopes.home(place), self.scopes.home(freeze.node)
        path = _plain(freeze.path)
        if own is home:
            if holds(whole, path) or holds(path, whole):
                yield _Seen(freeze, path, self.tree.order(freeze.node))
            return
        if isinstance(own, cst.Module):
            if holds(whole, path) or holds(path, whole):
                yield _Seen(freeze, path, 0)
            return
        root, _, rest = path.partition(".")
        owner = self.scopes.class_of(freeze.node)
        if root == "self" and owner is not None:
            yield from self._in_class(freeze, network, whole, place, owner, rest)
            return
        parameters = [each.name.value for each in own.params.params]
        calls = self.functions.callers(own)
        if root in parameters and calls:
            for call in calls:
                given = self.functions.passed(call, own, root)
                given_path = _plain(dotted(given)) if given is not None else ""
                if self.scopes.home(call) is not home:
                    yield _Seen(freeze, "", None)
                elif not given_path:
                    yield _Seen(freeze, "", self.tree.order(call))
                else:
                    joined = f"{given_path}.{rest}" if rest else given_path
                    if holds(whole, joined) or holds(joined, whole):
                        yield _Seen(freeze, joined, self.tree.order(call))
            return
        yield _Seen(freeze, "", None)

    def _in_class(
        self,
        freeze: Freeze,
        network: cst.BaseExpression,
        whole: str,
        place: cst.CSTNode,
        owner: cst.ClassDef,
        rest: str,
    ) -> Iterator[_Seen]:
        """Yield how a freeze in a method looks from where an instance is optimized."""
        made = self.functions.instance_of(network)
        if made is None or owner not in self.functions.lineage(made):
            same = self.scopes.class_of(place) is owner and whole.startswith("self.")
            path = f"self.{rest}"
            if same and (holds(whole, path) or holds(path, whole)):
                yield _Seen(freeze, path, self._in_own_class(freeze.node))
            elif not same and freeze.learns is not False:
                yield _Seen(freeze, "", None)
            return
        path = f"{whole}.{rest}" if rest else whole
        function = self.scopes.function(freeze.node)
        if self._in_own_class(freeze.node) == 0 or function is None:
            yield _Seen(freeze, path, 0)
            return
        calls = self.functions.callers(function)
        for call in calls:
            at_home = self.scopes.home(call) is self.scopes.home(place)
            yield _Seen(freeze, path, self.tree.order(call) if at_home else None)
        if not calls:
            yield _Seen(freeze, path, None)

    def _in_own_class(self, node: cst.CSTNode) -> int | None:
        """Return 0 for code that runs during construction: `__init__` or functions it calls."""
        function = self.scopes.function(node)
        if function is None or function.name.value == "__init__":
            return 0
        calls = self.functions.callers(function)
        homes = [self.scopes.function(call) for call in calls]
        made = bool(calls) and all(home and home.name.value == "__init__" for home in homes)
        return 0 if made else None


def _plain(path: str) -> str:
    """Remove the `.module` of a DataParallel wrapper from a path."""
    root, *rest = path.split(".")
    return ".".join([root, *(part for part in rest if part != "module")])
