"""Callbacks of Transformers and Lightning that print the findings once, as training starts.

`check` runs in a process of its own, with a time limit; nothing that it does stops a training.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    LightningCallback: type
    TransformersCallback: type

__all__ = ["LightningCallback", "TransformersCallback"]

_SECONDS: Final = 60
_FAILED: Final = 2
_BASES: Final = {
    "LightningCallback": (("lightning.pytorch", "Callback"), ("pytorch_lightning", "Callback")),
    "TransformersCallback": (("transformers", "TrainerCallback"),),
}


class _Findings:
    """Print the findings of the script, once."""

    def __init__(self, script: str | Path | None = None) -> None:
        super().__init__()
        self._script = script
        self._is_done = False

    def _print_once(self) -> None:
        if self._is_done:
            return
        self._is_done = True
        script = self._script or getattr(sys.modules.get("__main__"), "__file__", None)
        if script is not None:
            _print_findings(Path(script))


class _Transformers(_Findings):
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Print the findings in the first process."""
        if state.is_world_process_zero:
            self._print_once()


class _Lightning(_Findings):
    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Print the findings in the first process."""
        if trainer.is_global_zero:
            self._print_once()


_METHODS: Final = {"LightningCallback": _Lightning, "TransformersCallback": _Transformers}


def __getattr__(name: str) -> Any:
    """Make the callback of a framework on first use, so that the others need not be installed."""
    if name not in _METHODS:
        raise AttributeError(f"module 'torchlint.callbacks' has no attribute {name!r}")
    made = type(name, (_METHODS[name], _base(name)), {"__module__": __name__})
    globals()[name] = made
    return made


def _base(name: str) -> Any:
    """Return the framework's class; raise an import error where none is installed."""
    homes = _BASES[name]
    installed = (home for home in homes if find_spec(home[0].partition(".")[0]) is not None)
    module, base = next(installed, homes[-1])
    return getattr(import_module(module), base)


def _print_findings(script: Path) -> None:
    """Print what `check` prints of the script; say in one line where it could not run."""
    command = [
        sys.executable,
        "-m",
        "torchlint",
        "check",
        "--output-format=concise",
        "--color=never",
    ]
    try:
        done = subprocess.run(
            [*command, "--", str(script)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"torchlint: {error}", file=sys.stderr)  # noqa: T201
        return
    said = done.stderr if done.returncode >= _FAILED else done.stdout
    print(said, end="", file=sys.stderr)  # noqa: T201
