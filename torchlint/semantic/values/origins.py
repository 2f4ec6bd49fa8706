"""Origins: the expressions that a value can come from, through names and containers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.calls.instances import PREPARING
from torchlint.semantic.scope.libraries import DICTIONARIES
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How, Scope, dotted
from torchlint.semantic.syntax.methods import choices_of, is_none
from torchlint.semantic.values.iteration import Iteration
from torchlint.semantic.values.kind import Kind, called
from torchlint.semantic.values.values import Values

Steps = tuple[int | str | None, ...]
"""The path into a container: indices, keys, or None for any of its members."""
_At = tuple[cst.BaseExpression, Steps]
"""An expression, and the steps into what it holds."""
_Variable = tuple[str, Scope | None]
"""The path of a variable, `a` or `a.b`, and the scope that binds a plain name."""

_DEPTH: Final = 16
_MOST: Final = 1000
"""Places after which a search is given up: containers that hold each other have no end."""
_ENDS: Final = (How.FUNCTION, How.CLASS, How.IMPORT)
_SAME: Final = frozenset({"copy.copy", "copy.deepcopy"})
_SEQUENCES: Final = frozenset({"builtins.list", "builtins.tuple", "builtins.sorted"})
_WHOLE: Final = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
"""What no code takes apart: a function that returns one returns several in other cases."""
_LISTS: Final = (cst.Tuple, cst.List)
_ADDING: Final = frozenset("append insert extend".split())


class Origin(NamedTuple):
    """The expressions that a value can be; incomplete if one of them is unknown."""

    values: tuple[cst.BaseExpression, ...]
    complete: bool
    given: cst.Param | None = None
    """The parameter behind the value that code which is not in view may pass too."""
    members: tuple[cst.Call, ...] = ()
    """The calls whose unseen results have the value as a member, if all else is known."""

    @property
    def known(self) -> tuple[cst.BaseExpression, ...]:
        """The expressions if nothing else is possible, none if something may be."""
        return self.values if self.complete and self.given is None else ()


class _Addition(NamedTuple):
    """A value added to a container: at an index or a key, at its end, or item by item."""

    container: cst.BaseExpression
    value: cst.BaseExpression
    place: cst.Subscript | str | None = None
    extends: bool = False


@dataclass
class _Reach:
    """What one place in the search for origins leads to."""

    ends: bool = False
    """Whether the expression is an origin itself."""
    holds: bool = False
    """Whether the expression is a call whose unseen result has the value as a member."""
    lost: bool = False
    is_none: bool = False
    """Whether it leads to an item of `None`, which no code that works reads."""
    given: cst.Param | None = None
    onward: list[_At] = field(default_factory=list)

    def follow(self, node: cst.BaseExpression, steps: Steps) -> None:
        """Add a place that the search goes on from."""
        self.onward.append((node, steps))


class Origins(Analysis):
    """Follows values back to the expressions that create them."""

    def __init__(self, functions: Functions, values: Values, iteration: Iteration) -> None:
        super().__init__(functions)
        self.values = values
        self.iteration = iteration

    @cached_method
    def of(self, node: cst.BaseExpression, steps: Steps = ()) -> Origin:
        """Return every expression that `node`, or the element at `steps` in it, can be."""
        found: dict[int, cst.BaseExpression] = {}
        members: list[cst.Call] = []
        seen: set[tuple[int, Steps]] = set()
        lost, given, none = False, None, False
        places: list[_At] = [(node, steps)]
        while places:
            place = node, steps = places.pop()
            if (id(node), steps) in seen:
                continue
            seen.add((id(node), steps))
            if len(steps) > _DEPTH or len(seen) > _MOST:
                lost = True
                continue
            reach = self._reach(place)
            if reach.ends:
                found[id(node)] = node
            elif reach.holds and type(node) is cst.Call and node not in members:
                members.append(node)
            lost, given = lost or reach.lost, reach.given or given
            none = none or reach.is_none
            places += reach.onward[::-1]
        lost = lost or (none and not found)
        known = not lost and not members
        return Origin(tuple(found.values()), known, given, () if lost else tuple(members))

    @memoized(_Reach(lost=True))
    def _reach(self, place: _At) -> _Reach:
        """Return what one place leads to: an expression, and the steps into it."""
        node, steps = place
        reach = _Reach()
        if type(node) is cst.Name:
            self._follow_name(node, steps, reach)
        elif type(node) is cst.Attribute:
            self._follow_attribute(node, steps, reach)
        elif type(node) is cst.Subscript:
            self._follow_item(node, steps, reach)
        elif choices := choices_of(node):
            for each in choices:
                reach.follow(each, steps)
        elif type(node) is cst.NamedExpr:
            reach.follow(node.value, steps)
        elif type(node) is cst.Call:
            self._follow_call(node, steps, reach)
        elif steps:
            self._follow_into(node, steps, reach)
        else:
            reach.ends = True
        return reach

    # -- names ----------------------------------------------------------------

    def _follow_name(self, node: cst.Name, steps: Steps, reach: _Reach) -> None:
        bindings = self.scopes.reaching(node)
        if not steps and (not bindings or any(b.how in _ENDS for b in bindings)):
            reach.ends = True
            return
        if node.value == "None":
            reach.is_none = True
            return
        self._follow_bindings(bindings, steps, reach)
        self._follow_additions(node, steps, reach)

    def _follow_attribute(self, node: cst.Attribute, steps: Steps, reach: _Reach) -> None:
        bound = self.functions.attribute(node)
        bindings = [each for each in bound if not self.tree.inside(node, each.node)]
        known = not bindings and (
            self.names.name(node) is not None or self.functions.definition(node) is not None
        )
        if not steps and (known or any(b.how in _ENDS for b in bindings)):
            reach.ends = True
            return
        reach.lost = bool(bindings) and self.values.comes_set(node, bindings)
        self._follow_bindings(bindings, steps, reach)
        self._follow_additions(node, steps, reach)

    def _follow_bindings(self, bindings: Sequence[Binding], steps: Steps, reach: _Reach) -> None:
        if not bindings:
            reach.lost = True
        for binding in bindings:
            self._follow_binding(binding, steps, reach)

    def _follow_binding(self, binding: Binding, steps: Steps, reach: _Reach) -> None:
        value = binding.value
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            self._follow_parameter(binding.node, steps, reach)
        elif value is None:
            reach.lost = reach.lost or binding.how is not How.DECLARED
        elif binding.how is How.ASSIGN or (binding.how is How.AUGMENTED and steps):
            if not _computes(binding.node):
                reach.follow(value, steps)
        elif binding.how is How.UNPACKED and not binding.starred:
            reach.follow(value, (*binding.path, *steps))
        elif binding.how is How.LOOP:
            source, path = self.iteration.source(value, binding.path)
            if source is None:
                reach.lost = True
            else:
                reach.follow(source, (None, *path, *steps))
        else:
            reach.lost = True

    def _follow_parameter(self, node: cst.Param, steps: Steps, reach: _Reach) -> None:
        if self.functions.given_unseen(node):
            reach.given = node
        given = self.functions.given(node)
        gathered = self.functions.gathered(node) if steps and node.star else []
        reach.lost = reach.lost or not (given or gathered)
        for one in given:
            reach.follow(one, steps)
        for arg in gathered:
            if arg.star:
                reach.follow(arg.value, steps if arg.star == "**" else (None, *steps[1:]))
            elif arg.keyword is None or _fits(arg.keyword.value, steps[0]):
                reach.follow(arg.value, steps[1:])

    def additions(self, node: cst.Name | cst.Attribute) -> list[cst.BaseExpression]:
        """Return the values that the file adds to a container later."""
        return [each.value for each in self._additions.get(self._variable(node), ())]

    def _follow_additions(
        self, node: cst.Name | cst.Attribute, steps: Steps, reach: _Reach
    ) -> None:
        """Follow values added to a container later (`d["train"] = …`, `l.append(…)`)."""
        for each in self._additions.get(self._variable(node), ()) if steps else ():
            if each.extends:
                reach.follow(each.value, steps)
            elif _fits(self._step(each.place), steps[0]):
                reach.follow(each.value, steps[1:])

    @cached_property
    def _additions(self) -> dict[_Variable, list[_Addition]]:
        """The values added to containers, by the variable that holds each: items, then calls."""
        found: dict[_Variable, list[_Addition]] = {}
        for each in (*self._assigned_items(), *self._adding_calls()):
            found.setdefault(self._variable(each.container), []).append(each)
        found.pop(("", None), None)
        return found

    def _variable(self, node: cst.BaseExpression) -> _Variable:
        """Return the variable that an expression names, one without a path if it names none."""
        if isinstance(node, cst.Name):
            return node.value, self.scopes.lookup(node.value, self.scopes.scope(node))
        return dotted(node), None

    def _assigned_items(self) -> Iterator[_Addition]:
        for line in self.tree.all(cst.Assign):
            for each in line.targets:
                if isinstance(each.target, cst.Subscript):
                    yield _Addition(each.target.value, line.value, place=each.target)

    def _adding_calls(self) -> Iterator[_Addition]:
        for call in self.tree.all(cst.Call):
            func = call.func
            if not isinstance(func, cst.Attribute) or not call.args:
                continue
            if func.attr.value in _ADDING:
                extends = func.attr.value == "extend"
                yield _Addition(func.value, call.args[-1].value, extends=extends)
            elif func.attr.value == "update":
                for arg in call.args:
                    key = None if arg.keyword is None else arg.keyword.value
                    yield _Addition(func.value, arg.value, key, extends=key is None)

    # -- containers -----------------------------------------------------------

    def _step(self, node: cst.Subscript | str | None) -> int | str | None:
        return self.values.key(node) if isinstance(node, cst.Subscript) else node

    def _follow_item(self, node: cst.Subscript, steps: Steps, reach: _Reach) -> None:
        if _takes_many(node.slice[0].slice):
            if steps:
                reach.follow(node.value, (None, *steps[1:]))
            else:
                reach.ends = True
            return
        reach.follow(node.value, (self._step(node), *steps))

    def _follow_into(self, node: cst.BaseExpression, steps: Steps, reach: _Reach) -> None:
        first, rest = steps[0], steps[1:]
        if isinstance(node, (cst.Tuple, cst.List)):
            chosen = node.elements
            if isinstance(first, int) and -len(chosen) <= first < len(chosen):
                chosen = (chosen[first],)
            for element in chosen:
                starred = isinstance(element, cst.StarredElement)
                reach.follow(element.value, (None, *rest) if starred else rest)
        elif isinstance(node, cst.Dict):
            for entry in node.elements:
                if isinstance(entry, cst.StarredDictElement):
                    reach.follow(entry.value, steps)
                elif isinstance(entry, cst.DictElement):
                    key = self.values.value_of(entry.key).literal
                    if _fits(key if type(key) in (int, str) else None, first):
                        reach.follow(entry.value, rest)
        elif isinstance(node, cst.DictComp):
            reach.follow(node.value, rest)
        elif isinstance(node, (cst.ListComp, cst.GeneratorExp)):
            reach.follow(node.elt, rest)
        elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
            reach.follow(node.left, (None, *rest))
            reach.follow(node.right, (None, *rest))
        elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
            repeated = [each for each in (node.left, node.right) if isinstance(each, cst.List)]
            reach.lost = reach.lost or not repeated
            for each in repeated:
                reach.follow(each, (None, *rest))
        else:
            reach.lost = True

    # -- calls ----------------------------------------------------------------

    def _follow_call(self, node: cst.Call, steps: Steps, reach: _Reach) -> None:
        name = self.names.name(node.func)
        plain = [arg.value for arg in node.args if arg.keyword is None and not arg.star]
        if name in _SAME and plain:
            reach.follow(plain[0], steps)
            return
        if name == "builtins.map" and isinstance(plain[0], cst.Lambda):
            reach.follow(plain[0].body, steps[1:])
            return
        if steps and name in _SEQUENCES and plain:
            reach.follow(plain[0], (None, *steps[1:]))
            return
        if steps and name in DICTIONARIES:
            for arg in node.args:
                if arg.keyword is None:
                    reach.follow(arg.value, steps)
                elif _fits(arg.keyword.value, steps[0]):
                    reach.follow(arg.value, steps[1:])
            return
        functions = self.functions.surely_held(node.func)
        if steps and not functions and self.functions.is_self(node.func):
            functions = self.functions.callees(node)
        for function in functions:
            if self.functions.is_generator(function):
                reach.lost = True
                return
            for returned in self.functions.returns(function):
                reach.follow(returned, steps)
        if functions:
            return
        if self._follow_method(node, plain, steps, reach):
            return
        if name == "builtins.getattr" and len(plain) > 1:
            self._follow_named(plain, steps, reach)
            return
        read = self.values.files.read_by(node)
        if read is not None:
            reach.follow(read, steps)
            return
        if name in _WHOLE and type(steps[0] if steps else None) is int:
            return
        if len(steps) > 1 and not _is_tensor(name):
            reach.lost = True
        elif steps and name != "torch.utils.data.random_split" and not _is_tensor(name):
            reach.holds = True
        else:
            reach.ends = True

    def _follow_named(
        self, plain: Sequence[cst.BaseExpression], steps: Steps, reach: _Reach
    ) -> None:
        """Follow `getattr(self, f"{stage}_loss")` to every attribute that its name can mean."""
        owner, named = self.functions.instance_of(plain[0]), _pattern(plain[1])
        found = [
            binding
            for line in (self.functions.lineage(owner) if owner and named else ())
            for name, bindings in self.scopes.scope_at(line).bindings.items()
            if named and name.startswith("self.") and named.fullmatch(name[len("self.") :])
            for binding in bindings
        ]
        if not found and not steps:
            reach.ends = True
            return
        self._follow_bindings(found, steps, reach)
        for default in plain[2:]:
            reach.follow(default, steps)

    def _follow_method(
        self, node: cst.Call, plain: Sequence[cst.BaseExpression], steps: Steps, reach: _Reach
    ) -> bool:
        """Look through the methods of dictionaries and through `accelerator.prepare(…)`."""
        if not isinstance(node.func, cst.Attribute) or self.names.name(node.func) is not None:
            return False
        owner, method = node.func.value, node.func.attr.value
        if method == "values" and steps and not plain:
            reach.follow(owner, (None, *steps[1:]))
        elif method == "items" and steps[1:2] == (1,) and not plain:
            reach.follow(owner, (None, *steps[2:]))
        elif method in PREPARING and plain:
            if len(plain) == 1:
                reach.follow(plain[0], steps)
            elif steps and isinstance(steps[0], int) and steps[0] < len(plain):
                reach.follow(plain[steps[0]], steps[1:])
            else:
                reach.lost = True
        elif method == "optimizers" and not plain:
            return self._follow_optimizers(owner, steps, reach)
        else:
            return False
        return True

    def _follow_optimizers(self, module: cst.BaseExpression, steps: Steps, reach: _Reach) -> bool:
        """Look through `self.optimizers()` to what Lightning's hook gives, alone or in lists."""
        owner = self.functions.instance_of(module)
        hook = self.functions.method(owner, "configure_optimizers") if owner is not None else None
        for given in self.functions.returns(hook) if hook is not None else ():
            made = [given]
            while made and isinstance(first := self.values.value_of(made[0]).node, _LISTS):
                made = [each.value for each in first.elements]
            at = steps[0] if steps else 0 if len(made) == 1 else None
            made = made[at:][:1] if isinstance(at, int) and at >= 0 else made
            reach.lost = reach.lost or not made or at is None
            for each in made:
                inner = ("optimizer",) if isinstance(each, cst.Dict) else ()
                reach.follow(each, (*inner, *steps[1:]))
        return hook is not None


def _pattern(name: cst.BaseExpression) -> re.Pattern[str] | None:
    """Return what an attribute's name matches, None for a name that is all unknown."""
    if isinstance(name, cst.SimpleString):
        return re.compile(re.escape(str(name.evaluated_value)))
    if isinstance(name, cst.FormattedString):
        texts = [
            re.escape(part.value) if isinstance(part, cst.FormattedStringText) else r"\w*"
            for part in name.parts
        ]
        spelled = any(isinstance(part, cst.FormattedStringText) for part in name.parts)
        return re.compile("".join(texts)) if spelled else None
    return None


def _is_tensor(name: str | None) -> bool:
    """Return whether a call gives a tensor, whose items are tensors like it."""
    return name is not None and name.startswith("torch.") and called(name) is Kind.TENSOR


def _computes(node: cst.CSTNode) -> bool:
    """Return whether a line changes what a variable holds in place: `values /= 2` adds no item."""
    return type(node) is cst.AugAssign and not isinstance(node.operator, cst.AddAssign)


def _fits(key: int | str | None, wanted: int | str | None) -> bool:
    return key is None or wanted is None or key == wanted


def _takes_many(index: cst.BaseSlice) -> bool:
    """Return whether an index keeps the members, as `[1:]` and the new axis of `[None]` do."""
    word = index.value if isinstance(index, cst.Index) else None
    return isinstance(index, cst.Slice) or is_none(word)
