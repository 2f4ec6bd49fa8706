"""The settings of one directory, and the error for an invalid one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

ENVIRONMENT: Final = "environment"
"""The source of a setting that comes from a variable."""

DEFAULT_EXCLUDE: Final = tuple(
    (
        "._* .bzr .direnv .eggs .git .git-rewrite .hg .ipynb_checkpoints .mypy_cache .nox .pants.d "
        ".pyenv .pytest_cache .pytype .ruff_cache .svn .torchlint_cache .tox .venv .vscode "
        "__pycache__ __pypackages__ _build buck-out build dist node_modules site-packages venv"
    ).split()
)
"""Names of folders with third-party code or generated files, and of what macOS adds to files."""


RESULTS_ONLY: Final = tuple(
    (
        "*_benchmark.py *_test.py *smoke_test*.py archive archived attic backup bench_*.py "
        "benchmark benchmark.py benchmark_*.py benchmarks conftest.py convert_*.py deprecated "
        "obsolete old profile_*.py retired setup.py test test_*.py testing tests unittest "
        "unittests"
    ).split()
)
"""Files and folders whose speed matters to no training."""


class ConfigError(Exception):
    """An invalid setting; the message names its place and the nearest valid word."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True)
class Settings:
    """Every option of `check` and `fix` that configuration may set, for one directory.

    `root` is the folder that patterns are relative to. `sources` maps each option to the origin
    of its value: `default`, `command line`, `environment`, or the path of a file.
    """

    root: Path = field(default_factory=Path.cwd)
    config_file: Path | None = None
    bases: tuple[Path, ...] = ()
    """The files that the configuration extends, the nearest first."""
    select: tuple[str, ...] | None = None
    """None selects the rules that are on by default."""
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    extend_ignore: tuple[str, ...] = ()
    fixable: tuple[str, ...] = ("ALL",)
    unfixable: tuple[str, ...] = ()
    extend_safe_fixes: tuple[str, ...] = ()
    extend_unsafe_fixes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = DEFAULT_EXCLUDE
    extend_exclude: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    severity: Mapping[str, str] = field(default_factory=dict)
    """`error`, `warning`, `note` or `off`, by the words that select rules."""
    results_only: tuple[str, ...] = RESULTS_ONLY
    """Patterns of files where only the rules about what is learned or measured run."""
    target_torch: tuple[int, int] | None = None
    """None if the project does not state which versions of torch it allows."""
    target_device: str = "auto"
    preview: bool = False
    unsafe_fixes: bool = False
    ignore_suppressions: bool = False
    program: bool = True
    """Judge a file together with the definitions of other modules."""
    project_root: Path | None = None
    """The folder of the whole project; None finds it by its `pyproject.toml` or repository."""
    src: tuple[str, ...] = ()
    """Folders, relative to `root`, in which imports are looked up as well."""
    respect_gitignore: bool = True
    force_exclude: bool = False
    required_version: str | None = None
    output_format: str = "full"
    output_file: Path | None = None
    statistics: bool = False
    baseline: Path | None = None
    sort: str = "file"
    show_low: bool = False
    fail_on: str = "low"
    exit_zero: bool = False
    jobs: int | None = None
    file_timeout: float = 60
    """CPU seconds that one file may take; 0 is no limit."""
    no_cache: bool = False
    cache_dir: Path | None = None
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The options of single rules, by the name of the rule."""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    def source_of(self, option: str) -> str:
        """Return where the value of an option came from."""
        return self.sources.get(option, "default")


OF_THE_RUN: Final = frozenset(
    (
        "output_format output_file statistics baseline sort show_low fail_on exit_zero jobs "
        "file_timeout no_cache cache_dir quiet verbose color"
    ).split()
)
"""Options of the run and its report, which do not change the findings.

Those of the folder that torchlint is called in hold for all files.
"""

NOT_OPTIONS: Final = frozenset({"root", "config_file", "bases", "sources"})


def option_names() -> tuple[str, ...]:
    """Return the field names of all options."""
    return tuple(each.name for each in fields(Settings) if each.name not in NOT_OPTIONS)


def key_of(option: str) -> str:
    """Return the key of an option in a configuration file, with dashes for underscores."""
    return option.replace("_", "-")


def variable_of(option: str) -> str:
    """Return the environment variable of an option."""
    return f"TORCHLINT_{option.upper()}"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `", did you mean `x`?"` for the known word nearest to `word`, or an empty text."""
    from difflib import get_close_matches

    folded = {each.lower(): each for each in known}
    found = get_close_matches(word.lower(), folded, n=1, cutoff=0.6)
    return f", did you mean `{folded[found[0]]}`?" if found else ""


def target_version(text: str) -> tuple[int, int]:
    """Parse a version of torch such as `2.4`; raise `ValueError` for anything else."""
    match = re.fullmatch(r"\s*([0-9]+)\.([0-9]+)(?:\.[0-9]+)?\s*", text)
    if match is None:
        raise ValueError(f"`{text}` is not a version of torch such as `2.4`")
    return int(match[1]), int(match[2])
