"""The Python API: check and fix a text in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from torchlint.config import ConfigError, Settings, load, read_values, target_version
from torchlint.engine.checking import check_bytes, check_source
from torchlint.engine.diagnostics import (
    CheckError,
    Diagnostic,
    FixedSource,
    diagnostics_of,
    fixed_of,
)
from torchlint.engine.fixing import fix_bytes, fix_source
from torchlint.engine.usedelsewhere import usage_unknown
from torchlint.notebook import is_notebook
from torchlint.registry import Registry, RegistryError, Selection, load_registry
from torchlint.source import Source

Words = str | Iterable[str]
"""One code, prefix or name, or several."""


def check(
    source: str | bytes,
    *,
    filename: str = "<string>",
    select: Words | None = None,
    extend_select: Words = (),
    ignore: Words = (),
    target_torch: str | None = None,
    target_device: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> list[Diagnostic]:
    r"""Return what torchlint finds in a script, or in a notebook, in the order of its text.

    Nothing is read from disk, written, run or printed; `filename` only labels `source`. A name that
    ends in `.ipynb` makes it a notebook, as JSON. Bytes are decoded as Python does.
    A source that does not parse has one finding, `TL001`.

    `select`, `extend_select` and `ignore` are codes, prefixes such as `TL2`, names, or `ALL`;
    `target_torch` is a version such as `2.4`, `target_device` one of `auto`, `cpu`, `cuda`, `mps`
    and `xpu`. `config` has any other setting, with the names and types of a `[tool.torchlint]`
    table; the other arguments override its keys.

    Raises `torchlint.ConfigError` for an invalid setting, and `torchlint.CheckError` if a rule or a
    pack of rules failed, with the findings of the others.

    >>> import torchlint
    >>> text = "import torch\ntorch.autograd.set_detect_anomaly(True)\ntorch.ones(3).sum()\n"
    >>> [(each.code, each.location.row) for each in torchlint.check(text)]
    [('TL801', 2)]
    """
    words = {"select": select, "extend_select": extend_select, "ignore": ignore}
    run = _Run(filename, _given(config, words, target_torch, target_device))
    return run.check(source)


def fix(
    source: str | bytes,
    *,
    filename: str = "<string>",
    unsafe_fixes: bool | None = None,
    select: Words | None = None,
    extend_select: Words = (),
    ignore: Words = (),
    target_torch: str | None = None,
    target_device: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> FixedSource:
    r"""Return a script, or a notebook, with its fixes made: `text`, `applied`, `remaining`.

    Fixes are made until none is left. Without `unsafe_fixes` only fixes that keep losses and
    parameters, up to rounding, are made. The other arguments are those of `check`.

    >>> import torchlint
    >>> text = "import torch\ntorch.autograd.set_detect_anomaly(True)\ntorch.ones(3).sum()\n"
    >>> fixed = torchlint.fix(text)
    >>> fixed.text
    'import torch\ntorch.ones(3).sum()\n'
    >>> [each.title for each in fixed.applied], fixed.remaining
    (['Remove the anomaly detection'], ())
    """
    words = {"select": select, "extend_select": extend_select, "ignore": ignore}
    given = _given(config, words, target_torch, target_device)
    if unsafe_fixes is not None:
        given["unsafe_fixes"] = unsafe_fixes
    return _Run(filename, given).fix(source)


class _Run:
    """The rules and settings of one call of the API."""

    def __init__(self, filename: str, given: Mapping[str, Any]) -> None:
        self.filename = filename
        try:
            self.registry = _registry()
            self.settings: Settings = load(Path(filename), given, isolated=True)
            self.heads = {head.code: head for head in self.registry.rules}
            self.rules: Selection = self.registry.select(self.settings)
        except ConfigError as error:
            raise ConfigError(error.message.removeprefix("--")) from None
        except RegistryError as error:
            raise CheckError((str(error),)) from None

    def check(self, source: str | bytes) -> list[Diagnostic]:
        """Check the source."""
        text = self._text(source)
        if isinstance(text, Source):
            result = check_source(text, self.rules, self.settings, used_elsewhere=usage_unknown)
        else:
            result = check_bytes(text, self.filename, self.rules, self.settings, usage_unknown)
        found = diagnostics_of(result, self.heads)
        errors = (*self.registry.errors, *result.errors, *result.warnings)
        if errors:
            raise CheckError(errors, found)
        return list(found)

    def fix(self, source: str | bytes) -> FixedSource:
        """Fix the source."""
        text = self._text(source)
        if isinstance(text, Source):
            result = fix_source(text, self.rules, self.settings, used_elsewhere=usage_unknown)
        else:
            result = fix_bytes(
                text, self.filename, self.rules, self.settings, used_elsewhere=usage_unknown
            )
        fixed = fixed_of(result, self.heads)
        errors = (*self.registry.errors, *result.errors, *result.warnings)
        if errors:
            raise CheckError(errors, fixed.remaining, fixed)
        return fixed

    def _text(self, source: str | bytes) -> Source | bytes:
        """Return the source; bytes and notebooks are decoded."""
        if isinstance(source, bytes):
            return source
        if is_notebook(self.filename):
            return source.encode("utf-8", "surrogatepass")
        return Source(self.filename, source)


@cache
def _registry() -> Registry:
    """Return the registry of rules, cached for the life of the process."""
    return load_registry()


def _given(
    config: Mapping[str, Any] | None,
    words: Mapping[str, Words | None],
    target_torch: str | None,
    target_device: str | None,
) -> dict[str, Any]:
    """Return the settings that the caller passed, by field name."""
    given = read_values(config or {}, lambda key: "config")
    for name, value in words.items():
        if value is not None and (value or name == "select"):
            given[name] = (value,) if isinstance(value, str) else tuple(value)
    if target_torch is not None:
        try:
            given["target_torch"] = target_version(target_torch)
        except ValueError as error:
            raise ConfigError(f"target_torch: {error}") from None
    if target_device is not None:
        given |= read_values({"target-device": target_device}, lambda key: "target_device")
    return given
