"""Fitting: calls whose arguments a function or class in view does not take."""

from __future__ import annotations

import libcst as cst

from torchlint.semantic.calls.functions import Analysis, Definition
from torchlint.semantic.values.kind import Kind, derived


class Fitting(Analysis):
    """Compares the arguments of calls with the signatures of what they certainly run."""

    def fails(self, call: cst.Call) -> bool:
        """Return whether a call raises a `TypeError` for its arguments."""
        if any(arg.star for arg in call.args):
            return False
        function = self._run(call)
        if function is None or function.decorators:
            return False
        return not self._takes(function, call)

    def _run(self, call: cst.Call) -> cst.FunctionDef | None:
        """Return the function that certainly gets the arguments of a call."""
        if not isinstance(call.func, cst.Name | cst.Attribute):
            return None
        named = self._named(call.func)
        if isinstance(named, cst.ClassDef):
            return self._own_method(named, "__init__")
        if named is not None:
            return None if self._is_method(named) else named
        owner = self.functions.instance_of(call.func)
        if owner is None or derived(self.functions.bases(owner)) is not Kind.MODULE:
            return None
        return self._own_method(owner, "forward")

    def _named(self, func: cst.Name | cst.Attribute) -> Definition | None:
        """Return the definition whose own name, or that of an import of it, is called."""
        found = self.functions.definition(func)
        if isinstance(func, cst.Name):
            bound = self.scopes.reaching(func)
        else:
            bound = self.names.linked(func)
        return found if bound and all(each.node is found for each in bound) else None

    def _own_method(self, owner: cst.ClassDef, name: str) -> cst.FunctionDef | None:
        """Return a method that a class itself defines, where nothing wraps the class."""
        method = self.functions.method(owner, name)
        plain = not (owner.decorators or owner.keywords or self.functions.method(owner, "__new__"))
        return method if plain and method and self.scopes.scope(method).node is owner else None

    def _is_method(self, function: cst.FunctionDef) -> bool:
        return isinstance(self.scopes.scope(function).node, cst.ClassDef)

    def _takes(self, function: cst.FunctionDef, call: cst.Call) -> bool:
        """Return whether the parameters of a function, behind `self`, fit the arguments."""
        params = function.params
        own = self._is_method(function)
        plain = [*params.posonly_params, *params.params][own:]
        placed = sum(arg.keyword is None for arg in call.args)
        named = {arg.keyword.value for arg in call.args if arg.keyword is not None}
        if placed > len(plain) and not isinstance(params.star_arg, cst.Param):
            return False
        known = {each.name.value for each in (*params.params[own:], *params.kwonly_params)}
        if named - known and params.star_kwarg is None:
            return False
        open_ones = [*plain[placed:], *params.kwonly_params]
        return all(each.default is not None or each.name.value in named for each in open_ones)
