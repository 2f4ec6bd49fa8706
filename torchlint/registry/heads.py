"""Rule heads: what is known of a rule before its module is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torchlint.rule import Rule

__all__ = ["RegistryError", "RuleHead", "holds_rule", "not_imported"]

_DEFAULTS: Final = {"about": ("torch",), "since": (1, 0), "default": True}
_PARTS: Final = ("about", "needs", "since", "default")
_CODE: Final = re.compile(r"[A-Z]{2,5}[0-9]{3}")
_QUOTES: Final = '"' * 3
# Both begin with plain text, which `re` finds much sooner than a `^`.
_BODY: Final = re.compile(r"\nclass \w+\((?:\w+\.)?Rule\):((?:\n(?:[ \t].*|(?=\n)))*)")
_PART: Final = re.compile(r"\n    (about|needs|since|default)(?:: [^=\n]+)? = (\([^()]*\)|[^\n]*)")


class RegistryError(Exception):
    """A rule or pack that cannot be used; the message names it."""


def _literal(text: str) -> Any:
    """Give the value of a literal, None for any other expression."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def holds_rule(text: str) -> bool:
    """Whether the text of a module has the class of a rule."""
    return _BODY.search("".join(text.split(_QUOTES)[::2])) is not None


def not_imported(pack: str, module: str, error: BaseException) -> RegistryError:
    """Say in one line that a module of a pack failed while it was imported."""
    said = f"{type(error).__name__}: {error}"
    return RegistryError(f"rule pack `{pack}`: {module} cannot be imported: {said}")


def _are_words(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(each, str) for each in value)


def _is_version(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(type(n) is int for n in value)


_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    "about": _are_words,
    "needs": _are_words,
    "since": _is_version,
    "default": lambda value: isinstance(value, bool),
}
_WORDS: Final = {
    "about": "a tuple of strings",
    "needs": "a tuple of strings",
    "since": "two numbers such as (2, 4)",
    "default": "True or False",
}


@dataclass(frozen=True)
class RuleHead:
    """What is known of a rule before its module is imported: code and name.

    `about`, `needs`, `default` and `since` are read from the text of the module where they are
    literals there; `load` imports it.
    """

    code: str
    name: str
    pack: str = ""
    module: str = ""
    file: str = ""
    rule: type[Rule] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, rule: type[Rule]) -> RuleHead:
        """Give the head of a rule class that is at hand."""
        return cls(rule.code, rule.name, rule=rule)

    @cached_property
    def about(self) -> tuple[str, ...]:
        """The libraries of which a file must name at least one."""
        return tuple(self._part("about"))

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """Words of which a file must hold at least one."""
        return tuple(self._part("needs"))

    @property
    def default(self) -> bool:
        """Whether the rule is on when nothing is selected."""
        return bool(self._part("default"))

    @property
    def since(self) -> tuple[int, int]:
        """The first version of torch that has what the rule advises."""
        major, minor = self._part("since")
        return major, minor

    def load(self) -> type[Rule]:
        """Import the rule; raises `RegistryError` that names it and its pack."""
        if self.rule is not None:
            return self.rule
        return self._imported

    def read(self) -> None:
        """Make sure that code and parts can be had and are of use; raises `RegistryError`."""
        if not _CODE.fullmatch(self.code):
            raise RegistryError(
                f"rule pack `{self.pack}`: {self.module}: `{self.code}` is no code: two to five "
                "letters and three digits, such as ABC101"
            )
        for part in _PARTS:
            value = self._part(part)
            if not _KINDS[part](value):
                raise RegistryError(
                    f"rule pack `{self.pack}`: {self.module}: `{part}` must be {_WORDS[part]}, "
                    f"it is {value!r}"
                )

    def _part(self, part: str) -> Any:
        if self.rule is None and part in self._written:
            return self._written[part]
        return getattr(self.load(), part)

    @cached_property
    def _written(self) -> dict[str, Any]:
        """The parts that stand as literals, or not at all, in the module's one class."""
        try:
            with open(self.file, "rb") as file:  # noqa: PTH123
                text = file.read().decode().replace("\r\n", "\n")
        except (OSError, UnicodeDecodeError):
            return {}
        bodies = _BODY.findall("".join(text.split(_QUOTES)[::2]))
        if len(bodies) != 1:
            return {}
        found = {part: _literal(written) for part, written in _PART.findall(bodies[0])}
        return {part: value for part, value in {**_DEFAULTS, **found}.items() if value is not None}

    @cached_property
    def _imported(self) -> type[Rule]:
        from torchlint.rule import Rule

        try:
            module = import_module(self.module)
        except (Exception, SystemExit) as error:
            raise not_imported(self.pack, self.module, error) from error
        rules = [
            each
            for each in vars(module).values()
            # isinstance() takes the alias `tuple[int, ...]` for a class on Python 3.10.
            if isinstance(each, type)
            and issubclass(type(each), type)
            and each.__module__ == self.module
            and issubclass(each, Rule)
            and hasattr(each, "code")
        ]
        self._agree(rules)
        return rules[0]

    def _agree(self, rules: list[type[Rule]]) -> None:
        """Refuse a module whose rule is not the one that its file name and text promise."""
        if len(rules) != 1:
            raise RegistryError(
                f"rule pack `{self.pack}`: {self.module} must hold one rule, it holds {len(rules)}"
            )
        promised = {"code": self.code, "name": self.name, **self._written}
        for part, value in promised.items():
            if getattr(rules[0], part) != value:
                raise RegistryError(
                    f"rule pack `{self.pack}`: {self.module} promises {part} {value!r}, "
                    f"its rule has {getattr(rules[0], part)!r}"
                )
