"""The rules there are: packs found by entry point, listed cheaply, imported when wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchlint.config import Settings
    from torchlint.rule import Rule

__all__ = ["Registry", "RegistryError", "RuleHead", "Selection", "load_registry"]


class RegistryError(Exception):
    """No rules, or packs that cannot stand beside each other; a run must not go on."""


@dataclass(frozen=True)
class RuleHead:
    """What is known of a rule before its module is imported: code and name.

    `needs`, `default` and `since` are read from the text of the module; `load` imports it.
    """

    code: str
    name: str
    pack: str = ""
    module: str = ""
    rule: type[Rule] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, rule: type[Rule]) -> RuleHead:
        """Give the head of a rule class that is at hand."""
        return cls(rule.code, rule.name, rule=rule)

    @property
    def needs(self) -> tuple[str, ...]:
        """Words of which a file must hold at least one."""
        raise NotImplementedError

    @property
    def default(self) -> bool:
        """Whether the rule is on when nothing is selected."""
        raise NotImplementedError

    @property
    def since(self) -> tuple[int, int]:
        """The first version of torch that has what the rule advises."""
        raise NotImplementedError

    def load(self) -> type[Rule]:
        """Import the rule; raises `RegistryError` that names it and its pack."""
        raise NotImplementedError


@dataclass(frozen=True)
class Selection:
    """The rules that a run applies, and the catalogue that they were selected from."""

    rules: tuple[RuleHead, ...]
    known: Mapping[str, str]
    """The name of every rule of the catalogue by its code."""
    complete: bool = True
    """Whether every rule that is on by default is among them."""

    @classmethod
    def of(cls, *rules: type[Rule]) -> Selection:
        """Select rule classes that are at hand, alone."""
        heads = tuple(RuleHead.of(rule) for rule in rules)
        return cls(heads, {head.code: head.name for head in heads})

    def __iter__(self) -> Iterator[RuleHead]:
        return iter(self.rules)


@dataclass(frozen=True)
class Registry:
    """Every rule of every pack, in the order of codes; `errors` name packs that failed."""

    rules: tuple[RuleHead, ...]
    errors: tuple[str, ...] = ()

    def find(self, word: str) -> RuleHead:
        """Give the rule of a code or a name; raises `ConfigError` with the nearest one."""
        raise NotImplementedError

    def select(self, settings: Settings) -> Selection:
        """Give the rules that `settings` select; raises `ConfigError` for an unknown word."""
        raise NotImplementedError


def load_registry() -> Registry:
    """List the built-in pack and every installed one; raises `RegistryError`."""
    raise NotImplementedError
