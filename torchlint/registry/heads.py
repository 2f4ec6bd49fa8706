"""Rule heads: what is known of a rule before its module is imported."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torchlint.rule import Rule

__all__ = ["RegistryError", "RuleHead"]

_DEFAULTS: Final = {"about": ("torch",), "since": (1, 0), "default": True}
_PARTS: Final = ("about", "needs", "since", "default")
_QUOTES: Final = '"' * 3
_BODY: Final = re.compile(r"^class \w+\((?:\w+\.)?Rule\):\n((?:[ \t].*\n|\n)*)", re.MULTILINE)
_PART: Final = re.compile(
    r"^    (about|needs|since|default)(?:: [^=\n]+)? = (\([^()]*\)|[^\n]*)", re.MULTILINE
)


class RegistryError(Exception):
    """A rule or pack that cannot be used; the message names it."""


def _literal(text: str) -> Any:
    """Give the value of a literal, None for any other expression."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


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
        """Make sure that all parts can be had; raises `RegistryError`."""
        for part in _PARTS:
            self._part(part)

    def _part(self, part: str) -> Any:
        if self.rule is None and part in self._written:
            return self._written[part]
        return getattr(self.load(), part)

    @cached_property
    def _written(self) -> dict[str, Any]:
        """The parts that stand as literals, or not at all, in the module's one class."""
        try:
            text = Path(self.file).read_text(encoding="utf-8")
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
        except Exception as error:
            raise RegistryError(
                f"rule pack `{self.pack}`: {self.module} cannot be imported: "
                f"{type(error).__name__}: {error}"
            ) from error
        rules = [
            each
            for each in vars(module).values()
            # isinstance() takes the alias `tuple[int, ...]` for a class on Python 3.10.
            if isinstance(each, type)
            and issubclass(type(each), type)
            and issubclass(each, Rule)
            and each.__module__ == self.module
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
