"""Options: which one of the command line or of a configuration a value comes from."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, NamedTuple

import libcst as cst

from torchlint.semantic.calls.annotations import named_types
from torchlint.semantic.syntax.methods import method_of
from torchlint.semantic.values.known import ValueAnalysis
from torchlint.semantic.values.values import State

_PARSING: Final = ("parse_args", "parse_known_args")


class Option(NamedTuple):
    """An option of a parser, or a field of a class, and the literal that it defaults to."""

    flag: str
    default: Any
    is_chosen: bool = False
    """Whether a file of the project gives the default, for this very run."""


class Options(ValueAnalysis):
    """Follows values to what `argparse`, or the class of a parameter, declares."""

    def of(self, node: cst.BaseExpression) -> Option | None:
        """Return the only option that a value can be, None if it may be something else."""
        origin = self.origins.of(node)
        made = origin.values or (node,)
        if len(made) != 1 or not isinstance(made[0], cst.Attribute):
            return None
        read = made[0]
        if self._is_parsed(read.value):
            return self._declared.get(read.attr.value)
        return self._field(read) or self._configured(read)

    def _configured(self, read: cst.Attribute) -> Option | None:
        """Return the entry of a configuration of Hydra, which its command line can change."""
        found = self.values.configurations.default(read)
        value = self.values.value_of(found[1]) if found is not None else None
        if found is None or value is None or not value.is_literal:
            return None
        return Option(found[0], value.literal, is_chosen=True)

    def _field(self, read: cst.Attribute) -> Option | None:
        """Return the field of a parameter's class that an attribute reads: `config.workers`."""
        owner = read.value
        bindings = self.functions.attribute(owner) if isinstance(owner, cst.Attribute) else ()
        if len(bindings) == 1 and bindings[0].value is not None:
            owner = bindings[0].value
        bindings = self.scopes.reaching(owner)
        parameter = bindings[0].node if len(bindings) == 1 else None
        if not isinstance(parameter, cst.Param) or parameter.annotation is None:
            return None
        types = [*named_types(parameter.annotation.annotation)]
        made = self.functions.definition(types[0]) if len(types) == 1 else None
        word = read.attr.value
        if not isinstance(made, cst.ClassDef):
            return None
        fields = self.scopes.scope_at(made).bindings.get(word, [])
        default = fields[0].value if len(fields) == 1 else None
        value = self.values.value_of(default) if default is not None else None
        if value is None or not value.is_literal or self.values.is_given(made, word):
            return None
        return Option(f"{made.name.value}.{word}", value.literal)

    def _is_parsed(self, node: cst.BaseExpression) -> bool:
        made = self.origins.of(node).values
        return bool(made) and all(
            isinstance(value, cst.Call) and method_of(value) in _PARSING for value in made
        )

    @cached_property
    def _declared(self) -> dict[str, Option]:
        """The options with a literal default by the attribute that holds them."""
        found: dict[str, list[Option | None]] = {}
        for call in self.tree.all(cst.Call):
            if method_of(call) == "add_argument":
                named = self._named(call)
                if named is not None:
                    found.setdefault(named[0], []).append(self._option(call, named[1]))
        return {
            name: options[0]
            for name, options in found.items()
            if len(options) == 1 and options[0] is not None
        }

    def _named(self, call: cst.Call) -> tuple[str, str] | None:
        """Return the attribute and the flag of a declared option."""
        flags = [
            value.literal
            for arg in call.args
            if arg.keyword is None and not arg.star
            for value in [self.values.value_of(arg.value)]
            if type(value.literal) is str
        ]
        long = [flag for flag in flags if flag.startswith("--")]
        named = long or [flag for flag in flags if flag.startswith("-")]
        if not named:
            return None
        given = self.values.argument(call, "dest").literal
        held = given if type(given) is str else named[0].lstrip("-").replace("-", "_")
        return held, named[0]

    def _option(self, call: cst.Call, flag: str) -> Option | None:
        default = self.values.argument(call, "default")
        if default.state is State.ABSENT:
            stores = self.values.argument(call, "action").equals("store_true")
            return Option(flag, False) if stores else None
        return Option(flag, default.literal) if default.is_literal else None
