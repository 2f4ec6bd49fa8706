"""Configurations: what `hydra.main` hands to a function, unless its command line changes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.scope.limits import CALLED
from torchlint.semantic.scope.scopes import How, dotted
from torchlint.semantic.syntax.methods import is_none, named_arguments
from torchlint.semantic.values.argumentfiles import ArgumentFiles

_MAIN: Final = "hydra.main"
_UPDATE: Final = "omegaconf.OmegaConf.update"
_DEFAULTS: Final = "defaults"
_SELF: Final = "_self_"
_OWN: Final = re.compile(r"(?:override )?hydra(?:/\w+)?")
"""The groups that configure Hydra itself."""
_GROUP: Final = re.compile(r"\w+")


class Configurations(Analysis):
    """Finds the entries of a configuration that Hydra puts together from files of the project."""

    def __init__(
        self,
        functions: Functions,
        files: ArgumentFiles,
        literal_of: Callable[[cst.BaseExpression], Any],
    ) -> None:
        super().__init__(functions)
        self._files = files
        self._literal_of = literal_of

    def entry(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return what files have for a part of a configuration, as in `cfg.trainer.max_epochs`."""
        keys: list[str] = []
        while isinstance(node, (cst.Attribute, cst.Subscript)):
            key = self._key(node)
            if key is None or self._is_set(key):
                return None
            keys.insert(0, key)
            node = node.value
        main = self._main(node, CALLED) if keys and isinstance(node, cst.Name) else None
        found = self._first(main, keys[0]) if main is not None else None
        for key in keys[1:]:
            found = _value(found, key)
        return found

    def default(self, node: cst.BaseExpression) -> tuple[str, cst.BaseExpression] | None:
        """Return the name of a part of a configuration, and what files have for it."""
        found = self.entry(node)
        if found is not None:
            return dotted(node).partition(".")[2], found
        keys: list[str] = []
        while isinstance(node, (cst.Attribute, cst.Subscript)) and not _is_kept(node):
            key = self._key(node)
            if key is None or self._is_set(key):
                return None
            keys.insert(0, key)
            node = node.value
        owner = self.scopes.class_of(node)
        first = self._parameter(node) if isinstance(node, cst.Attribute) else None
        if owner is None or first is None:
            return None
        place, found = self._files.made(owner)
        for key in (first, *keys):
            found = _value(found, key)
        return None if found is None else (f"{'.'.join((first, *keys))} in {place}", found)

    def _parameter(self, node: cst.Attribute) -> str | None:
        """Return the parameter whose value an attribute of `self` keeps."""
        bindings = self.functions.attribute(node)
        if len(bindings) != 1 or bindings[0].how is How.PARAMETER:
            return bindings[0].name if len(bindings) == 1 else None
        kept = bindings[0].value
        named = kept.value if isinstance(kept, cst.Subscript) else kept
        parameter = self.scopes.only(named).node
        if not isinstance(parameter, cst.Param) or not isinstance(kept, (cst.Subscript, cst.Name)):
            return None
        if isinstance(kept, cst.Name):
            return kept.value
        return self._key(kept) if parameter.star == "**" else None

    def _key(self, node: cst.Attribute | cst.Subscript) -> str | None:
        if isinstance(node, cst.Attribute):
            return node.attr.value
        index = node.slice[0].slice
        literal = self._literal_of(index.value) if isinstance(index, cst.Index) else None
        return literal if isinstance(literal, str) else None

    def _is_set(self, key: str) -> bool:
        """Return whether code sets an attribute or an entry of this name, or a part of one."""
        return key in self._set

    @cached_property
    def _set(self) -> frozenset[str | None]:
        """The names of all attributes and entries that code sets, or sets parts of."""
        found = set[str | None]()
        for line in self.tree.all(cst.AssignTarget):
            target: cst.BaseExpression = line.target
            while isinstance(target, (cst.Attribute, cst.Subscript)):
                found.add(self._key(target))
                target = target.value
        for call in self.functions.attributes("update"):
            text = self._updated(call)
            found |= set(text.split(".")) if isinstance(text, str) else set()
        return frozenset(found)

    def _updated(self, method: cst.Attribute) -> str | None:
        """Return the path that `OmegaConf.update(cfg, "trainer.max_epochs", 3)` sets."""
        call = self.tree.parent(method)
        if self.names.name(method) != _UPDATE or not isinstance(call, cst.Call):
            return None
        literal = self._literal_of(call.args[1].value) if len(call.args) > 1 else None
        return literal if isinstance(literal, str) else None

    def _main(self, name: cst.Name, depth: int) -> cst.Call | None:
        """Return the decorator of Hydra that makes the configuration which a name stands for."""
        parameter = self.scopes.only(name).node if depth else name
        function = self.tree.parent(self.tree.parent(parameter))
        if not isinstance(parameter, cst.Param) or not isinstance(function, cst.FunctionDef):
            return None
        for mark in (each.decorator for each in function.decorators):
            if isinstance(mark, cst.Call) and self.names.name(mark.func) == _MAIN:
                return mark
        given = self.functions.given(parameter)
        names = [each for each in given if isinstance(each, cst.Name)]
        found = {self._main(each, depth - 1) for each in names}
        return found.pop() if len(found) == 1 and len(names) == len(given) else None

    def _first(self, main: cst.Call, key: str) -> cst.BaseExpression | None:
        """Return an entry of the whole configuration, None where more than one file gives it."""
        folder = self._option(main, "config_path") or "."
        name = self._option(main, "config_name")
        whole = self._files.composed(f"{folder}/{name}") if name else None
        groups = _groups(_value(whole, _DEFAULTS)) if whole is not None else None
        if groups is None:
            return None
        if key not in groups:
            return _value(whole, key)
        given = self._files.composed(f"{folder}/{key}/{groups[key]}")
        alone = _value(whole, key) is None and _value(given, _DEFAULTS) is None
        return given if alone else None

    def _option(self, main: cst.Call, name: str) -> str:
        given = named_arguments(main, name)
        literal = self._literal_of(given[0]) if given else None
        return literal.removesuffix(".yaml") if isinstance(literal, str) else ""


def _is_kept(node: cst.Attribute | cst.Subscript) -> bool:
    """Return whether a node is an attribute in which an object keeps what it was made from."""
    return isinstance(node, cst.Attribute) and dotted(node.value) in ("self", "self.hparams")


def _value(node: cst.BaseExpression | None, key: str) -> cst.BaseExpression | None:
    """Return the value of a key in what stands for a mapping."""
    elements = node.elements if isinstance(node, cst.Dict) else ()
    found = (each for each in elements if isinstance(each, cst.DictElement))
    return next((each.value for each in found if _text(each.key) == key), None)


def _text(node: cst.BaseExpression) -> str | None:
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None


def _groups(defaults: cst.BaseExpression | None) -> dict[str, str] | None:
    """Return which file each group is taken from, None where the list says more than that."""
    found: dict[str, str] = {}
    for each in defaults.elements if isinstance(defaults, cst.List) else ():
        item = each.value.elements[0] if isinstance(each.value, cst.Dict) else None
        if not isinstance(item, cst.DictElement):
            if _text(each.value) != _SELF:
                return None
            continue
        group, option = _text(item.key) or "", _text(item.value)
        if _OWN.fullmatch(group) or is_none(item.value):
            continue
        if not _GROUP.fullmatch(group) or option is None:
            return None
        found[group] = option.removesuffix(".yaml")
    return found
