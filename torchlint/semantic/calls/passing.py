"""Passing: which expressions the calls in view pass to the parameters of functions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.calls.instances import SAME
from torchlint.semantic.calls.part import Part
from torchlint.semantic.calls.runners import Runners
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.syntax.methods import named_arguments, receiver_of

_DATACLASSES: Final = frozenset(
    "dataclasses.dataclass attr.s attr.attrs attr.dataclass attr.define attr.frozen "
    "attr.mutable attrs.define attrs.frozen attrs.mutable".split()
)
_STATIC: Final = "builtins.staticmethod"
_OF_CLASS: Final = "builtins.classmethod"
_FIELDS: Final = frozenset("dataclasses.field attr.ib attr.attrib attr.field attrs.field".split())
_MEMBERS: Final = ""
"""In place of a parameter: the members of a list."""
_DEFAULTS: Final = frozenset("default default_factory factory".split())


class Passing(Part):
    """Relates the arguments of calls to the parameters of the functions that they run."""

    @cached_property
    def _runners(self) -> Runners:
        return Runners(self.functions)

    def given(self, parameter: cst.Param) -> list[cst.BaseExpression]:
        """Return the expressions that calls in view pass to a parameter, and its default."""
        function = self.tree.parent(self.tree.parent(parameter))
        starred = isinstance(parameter.star, str) and parameter.star != ""
        if starred or type(function) is not cst.FunctionDef:
            return []
        found = []
        for call in self._running(function):
            value = self.passed(call, function, parameter.name.value)
            found.append(value if value is not None else parameter.default)
        found += self._runners.given(function, parameter)
        return [each for each in found if each is not None]

    def gathered(self, parameter: cst.Param) -> list[cst.Arg]:
        """Return the arguments of calls in view that `*args` or `**kwargs` gathers, as written."""
        function = self.tree.parent(self.tree.parent(parameter))
        if type(function) is not cst.FunctionDef:
            return []
        params = function.params
        named = {each.name.value for each in (*params.params, *params.kwonly_params)}
        calls = list(self._running(function))
        if parameter.star == "**":
            given = [each for call in calls for each in call.args if each.keyword or each.star]
            return [
                each
                for each in given
                if each.star == "**" or (each.keyword and each.keyword.value not in named)
            ]
        first = len(self._places(function))
        return [
            each
            for call in calls
            for number, each in enumerate(call.args)
            if not each.keyword and each.star != "**"
            if number + self._bound_first(call, function) >= first
        ]

    def _running(self, function: cst.FunctionDef) -> Iterator[cst.Call]:
        """Yield the calls that run a function, for one that hands all on those that give it."""
        for call in self.functions.callers(function):
            handing = self._handing_on(call)
            yield from (self.functions.callers(handing) if handing is not None else ()) or (call,)

    def _handing_on(self, call: cst.Call) -> cst.FunctionDef | None:
        """Return the function that hands all that it gets on: `f(*args, **kwargs)`."""
        if not call.args or not call.args[0].star or not all(arg.star for arg in call.args):
            return None
        function = self.scopes.function(call)
        if function is None:
            return None
        stars = (function.params.star_arg, function.params.star_kwarg)
        named = {each.name.value for each in stars if isinstance(each, cst.Param)}
        handed = {arg.value.value for arg in call.args if isinstance(arg.value, cst.Name)}
        owner = self.scopes.scope(function).node
        own = len(function.params.params) - (type(owner) is cst.ClassDef)
        return function if not own and named == handed else None

    def passed(
        self, call: cst.Call, function: cst.FunctionDef, name: str
    ) -> cst.BaseExpression | None:
        """Return the expression that a call passes for a parameter, None if it passes none."""
        if spelled := named_arguments(call, name):
            return spelled[0]
        place = self._places(function).get(name)
        if place is None:
            return None
        index = place - self._bound_first(call, function)
        if self.names.is_partial(call):
            index += 1
        elif (made := self.prepared(call.func)) is not None:
            known = self.passed(made, function, name)
            if known is not None:
                return known
            index -= sum(arg.keyword is None for arg in made.args) - 1
        plain = [arg for arg in call.args if arg.keyword is None]
        if not 0 <= index < len(plain) or any(arg.star for arg in plain[: index + 1]):
            return None
        return plain[index].value

    @cached_method
    def _places(self, function: cst.FunctionDef) -> dict[str, int]:
        """Return the positions of the parameters that may be passed by position."""
        parameters = (*function.params.posonly_params, *function.params.params)
        return {each.name.value: place for place, each in enumerate(parameters)}

    @memoized(None)
    def prepared(self, called: cst.CSTNode) -> cst.Call | None:
        """Return the call of `functools.partial` whose result a name holds."""
        held = self.functions.held(self.scopes.only(called))
        made = held[0] if len(held) == 1 else None
        return made if isinstance(made, cst.Call) and self.names.is_partial(made) else None

    def handed_back(self, call: cst.Call, function: cst.FunctionDef) -> cst.BaseExpression | None:
        """Return the argument that a function moves and hands back: `to_device(net, device)`.

        What it does with each member of a list, and gives as a list, is left out.
        """
        found = {self._moved(each) for each in self.functions.returns(function)} - {_MEMBERS}
        name = found.pop() if len(found) == 1 else None
        return self.passed(call, function, name) if name is not None else None

    def _moved(self, value: cst.BaseExpression) -> str | None:
        """Return the name of the parameter that a value is, after moves."""
        if type(value) is cst.ListComp:
            return _MEMBERS
        if (owner := receiver_of(value, *SAME)) is not None:
            return self._moved(owner)
        if type(value) is not cst.Name:
            return None
        node = self.scopes.only(value).node
        return node.name.value if type(node) is cst.Param else None

    def taken(
        self, call: cst.Call, function: cst.FunctionDef, value: cst.BaseExpression
    ) -> Binding | None:
        """Return the binding of the parameter for which a call passes an expression."""
        named = (*function.params.params, *function.params.kwonly_params)
        given = {id(self.passed(call, function, each.name.value)): each for each in named}
        whole = len(named) == self._bound_first(call, function)
        gathered = [
            each.value for each in call.args if each.keyword or (whole and each.star == "**")
        ]
        rest = function.params.star_kwarg if value in gathered else None
        parameter = given.get(id(value), rest)
        if parameter is None:
            return None
        bindings = self.scopes.scope_at(function).bindings.get(parameter.name.value, ())
        return next((one for one in bindings if one.node is parameter), None)

    def _bound_first(self, call: cst.Call, function: cst.FunctionDef) -> int:
        """Return how many leading parameters a call binds implicitly (`self`)."""
        owner = self.scopes.scope(function).node
        if type(owner) is not cst.ClassDef:
            return 0
        if _STATIC in self.names.marks(function):
            return 0
        method = function.name.value
        if type(call.func) is cst.Attribute and call.func.attr.value == method:
            named = self.functions.definition(call.func.value)
            return 0 if type(named) is cst.ClassDef else 1
        return 1

    # -- the first parameters of methods -----------------------------------------------

    def owner_of_self(self, parameter: cst.Param) -> cst.ClassDef | None:
        """Return the class of a `self` parameter, None for any other parameter."""
        parameters = self.tree.parent(parameter)
        function = self.tree.parent(parameters)
        if type(function) is not cst.FunctionDef or type(parameters) is not cst.Parameters:
            return None
        first = (*parameters.posonly_params, *parameters.params)[:1]
        if not first or first[0] is not parameter:
            return None
        if _STATIC in self.names.marks(function):
            return None
        owner = self.scopes.scope(function).node
        return owner if type(owner) is cst.ClassDef else None

    def class_given(self, binding: Binding) -> cst.ClassDef | None:
        """Return the class that the first parameter of a class method stands for."""
        first = binding.parameter
        method = self.scopes.function(first) if first is not None else None
        if first is None or method is None or _OF_CLASS not in self.names.marks(method):
            return None
        return self.owner_of_self(first)

    # -- fields of dataclasses ----------------------------------------------------

    @cached_method
    def of_field(self, field: Binding, owner: cst.ClassDef) -> tuple[Binding, ...]:
        """Return what calls in view assign to a field that a class declares, or the field itself.

        Only a dataclass has fields that calls assign. The default of one counts, too.
        """
        plain = _DATACLASSES.isdisjoint(self.names.marks(owner))
        given = () if plain else self._given_to_field(field, owner)
        made = tuple(field._replace(how=How.ASSIGN, value=each) for each in given)
        default = () if field.value is None or self._is_empty(field.value) else (field,)
        return (*made, *default) or (field,)

    def _is_empty(self, value: cst.BaseExpression) -> bool:
        """Return whether a field has no default: `attr.ib()`."""
        return (
            isinstance(value, cst.Call)
            and self.names.name(value.func) in _FIELDS
            and not named_arguments(value, *_DEFAULTS)
        )

    def _given_to_field(self, field: Binding, owner: cst.ClassDef) -> Iterator[cst.BaseExpression]:
        """Yield what the calls that make a dataclass without bases pass for a field."""
        declared = [
            each.target.value
            for line in owner.body.body
            if isinstance(line, cst.SimpleStatementLine)
            for each in line.body
            if isinstance(each, cst.AnnAssign) and isinstance(each.target, cst.Name)
        ]
        placed = field.name in declared and not owner.bases
        for mention in self.functions.mentions(owner.name.value):
            call = self.tree.parent(mention)
            if not isinstance(call, cst.Call) or call.func is not mention:
                continue
            if self.functions.definition(mention) is not owner:
                continue
            index = declared.index(field.name) if placed else len(call.args)
            plain = [arg for arg in call.args if arg.keyword is None]
            if index < len(plain) and not any(arg.star for arg in plain):
                yield plain[index].value
            yield from named_arguments(call, field.name)
