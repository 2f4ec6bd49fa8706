"""The magics of notebooks: `%load_ext torchlint`, then `%%torchlint` and `%torchlint`."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from torchlint.config import ConfigError
from torchlint.engine.diagnostics import CheckError, Diagnostic
from torchlint.engine.texts import check, fix
from torchlint.notebook.notebook import written

_MAGIC: Final = "%%torchlint"
_NAME: Final = "notebook.ipynb"


class _WordError(Exception):
    """A wrong word after a magic; the message names it."""


class _Words(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise instead of ending the kernel."""
        raise _WordError(message)


class TorchlintMagics:
    """The magics of one shell of IPython."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def torchlint(self, line: str, cell: str | None = None) -> None:
        """Report what makes training slow, in this cell or in all cells so far.

        `%%torchlint` runs the cell, too; `%%torchlint fix` prints the fixed cell instead.
        `--select` and `--ignore` take codes, names and groups.
        """
        try:
            options = _parsed(line)
            before = self._cells_before()
            cells = before if cell is None else [*before, cell]
            if options.fix:
                self._print_fixed(cells, options)
                return
            if cell is not None:
                cells[-1] = f"\n{cell}"  # lines count from the magic, as the editor counts them
            self._print_findings(cells, cell is not None, options)
        except (_WordError, ConfigError, CheckError) as error:
            print(f"torchlint: {error}")  # noqa: T201
        if cell is not None:
            self._shell.run_cell(cell)

    def _cells_before(self) -> list[str]:
        """Return the cells that were run before this one, without our own magics."""
        history = list(self._shell.history_manager.input_hist_raw)[1:-1]
        return [_without_magic(each) for each in history]

    def _print_findings(
        self, cells: Sequence[str], is_last_alone: bool, options: argparse.Namespace
    ) -> None:
        found = check(
            written(cells), filename=_NAME, select=options.select, ignore=options.ignore or ()
        )
        if is_last_alone:
            found = [each for each in found if each.cell == len(cells)]
        for each in found:
            print(_line(each, is_last_alone))  # noqa: T201
        if not found:
            print("torchlint: nothing found")  # noqa: T201

    def _print_fixed(self, cells: Sequence[str], options: argparse.Namespace) -> None:
        fixed = fix(
            written(cells), filename=_NAME, select=options.select, ignore=options.ignore or ()
        )
        made = json.loads(fixed.text)["cells"][-1]["source"]
        print("".join(made).rstrip("\n"))  # noqa: T201


def load(shell: Any) -> None:
    """Register the magics in a shell of IPython."""
    magics = TorchlintMagics(shell)
    shell.register_magic_function(magics.torchlint, "line_cell", "torchlint")


def _parsed(line: str) -> argparse.Namespace:
    words = _Words(prog=_MAGIC, add_help=False)
    words.add_argument("fix", nargs="?", choices=["fix"])
    words.add_argument("--select", type=_codes)
    words.add_argument("--ignore", type=_codes)
    try:
        return words.parse_args(shlex.split(line))
    except ValueError as error:
        raise _WordError(str(error)) from None


def _codes(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


def _without_magic(cell: str) -> str:
    """Return the code of a cell that was run; a cell that was only fixed was not."""
    first, _, rest = cell.partition("\n")
    if not first.startswith(_MAGIC):
        return cell
    return "" if "fix" in first.split() else f"\n{rest}"


def _line(found: Diagnostic, is_last_alone: bool) -> str:
    cell = "" if is_last_alone else f"cell {found.cell}, "
    fixed = "" if found.fix is None else f" ({found.fix.safety} fix)"
    place = f"{cell}line {found.location.row}"
    return f"{place}: {found.code} [{found.name}] {found.impact}: {found.message}{fixed}"
