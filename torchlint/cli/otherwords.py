"""Hints for commands and options of other tools, of Ruff above all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

_COMMANDS: Final[Mapping[str, str]] = {
    "format": "torchlint formats nothing: use `ruff format`",
    "help": "use `torchlint --help`",
    "analyze": "use `torchlint audit`, which goes through every known technique",
    "bench": "use `torchlint verify`",
    "benchmark": "use `torchlint verify`",
    "completion": "use `torchlint completions`",
    "compare": "use `torchlint verify`",
    "doctor": "use `torchlint audit`",
    "measure": "use `torchlint verify`",
    "profile": "use `torchlint verify`, which measures steps, syncs and memory",
    "prove": "use `torchlint verify`",
    "lsp": "use `torchlint server`",
    "settings": "use `torchlint config`",
}
_OPTIONS: Final[Mapping[str, str]] = {
    "--target-version": "every version of Python is read; `--target-torch` names the oldest torch",
    "--extension": "scripts are `.py`, notebooks `.ipynb`",
    "--silent": "use `--quiet`, and `--output-file` for the findings",
    "-s": "use `--quiet`, and `--output-file` for the findings",
    "--line-length": "torchlint keeps the layout of lines",
    "--extend-unfixable": "use `--unfixable`",
    "--extend-fixable": "use `--fixable`, which is `ALL` by default",
    "--extend-per-file-ignores": "use `--per-file-ignores`, which replaces those of the file",
    "--no-show-fixes": "leave out `--show-fixes`",
    "--no-fix-only": "leave out `--fix-only`",
    "--format": "use `--output-format`",
    "--show-source": "use `--output-format full`, the default",
    "--explain": "use `torchlint explain CODE`",
    "--disable": "use `--ignore`",
    "--enable": "use `--extend-select`",
    "--rcfile": "use `--config`",
    "--config-file": "use `--config`",
    "--max-workers": "use `--jobs`",
    "--num-workers": "use `--jobs`",
    "--write": "use `torchlint fix --apply`",
    "--in-place": "use `torchlint fix --apply`",
    "--inplace": "use `torchlint fix --apply`",
    "--autofix": "use `torchlint fix --apply`",
    "--noqa": "use `--add-noqa`, or `--ignore-noqa`",
    "--device": "use `--target-device`, or `torchlint verify --device`",
}
_FAMILIAR: Final = 0.72
"""The likeness above which a word is taken for a misspelling."""


def command_hint(word: str, known: Iterable[str]) -> str:
    """Return what to say after "no command `word`"."""
    if word in _COMMANDS:
        return f": {_COMMANDS[word]}"
    near = get_close_matches(word, list(known), n=1, cutoff=_FAMILIAR)
    return f", did you mean `{near[0]}`?" if near else "; `torchlint --help` lists them"


def option_hint(option: str, known: Iterable[str]) -> str:
    """Return what to say after "no option `option`"."""
    if option in _OPTIONS:
        return f": {_OPTIONS[option]}"
    near = get_close_matches(option, known, n=1, cutoff=_FAMILIAR)
    return f", did you mean `{near[0]}`?" if near else "; `--help` lists them"
