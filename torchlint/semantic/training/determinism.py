"""Determinism: the settings by which a script asks for reproducible results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.values.calls import Calls
from torchlint.semantic.values.known import KnownValues, ValueAnalysis

_FLAGS: Final = {
    "torch.backends.cudnn.deterministic": True,
    "torch.backends.cudnn.enabled": False,
    "torch.utils.deterministic.fill_uninitialized_memory": True,
}
_WORDS: Final = frozenset(flag.rpartition(".")[2] for flag in _FLAGS)
_SWITCHES: Final = frozenset({"torch.use_deterministic_algorithms", "torch.set_deterministic"})
_MODES: Final = "torch.set_deterministic_debug_mode"
_VARIABLE: Final = "CUBLAS_WORKSPACE_CONFIG"
_WORKSPACES: Final = (":4096:8", ":16:8")


class Setting(NamedTuple):
    """One statement or call that asks for determinism; `name` is what it sets."""

    node: cst.Assign | cst.Call
    name: str


class Determinism(ValueAnalysis):
    """Finds the settings that restrict torch to deterministic kernels."""

    def __init__(self, values: KnownValues, calls: Calls) -> None:
        super().__init__(values)
        self.calls = calls

    def settings(self) -> Iterator[Setting]:
        """Yield the places that ask for determinism, including disabling cuDNN."""
        for line in self.tree.all(cst.Assign):
            for each in line.targets:
                name = self._set(each.target, line.value)
                if name is not None:
                    yield Setting(line, name)
        for site in self.calls.of(*_SWITCHES, _MODES):
            call, name = site.node, site.name or ""
            if self._asks(call, name):
                yield Setting(call, name)

    def _set(self, target: cst.BaseExpression, value: cst.BaseExpression) -> str | None:
        """Return the flag, or the environment variable, that an assignment sets."""
        if isinstance(target, cst.Attribute):
            name = self.names.name(target) if target.attr.value in _WORDS else None
            wanted = _FLAGS.get(name or "")
            found = wanted is not None and self.values.value_of(value).equals(wanted)
            return name if found else None
        if isinstance(target, cst.Subscript) and self.names.name(target.value) == "os.environ":
            named = self.values.key(target) == _VARIABLE
            asked = any(self.values.value_of(value).equals(each) for each in _WORKSPACES)
            return _VARIABLE if named and asked else None
        return None

    def _asks(self, call: cst.Call, name: str) -> bool:
        if name in _SWITCHES:
            return self.values.argument(call, "mode", 0).equals(True)
        if name == _MODES:
            mode = self.values.argument(call, "debug_mode", 0)
            return any(mode.equals(each) for each in ("warn", "error", 1, 2))
        return False
