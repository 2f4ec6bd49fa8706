"""The option `--against`: a git revision as the original, and the working tree as the variant."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from torchlint.cli.options import all_of, flag
from torchlint.cli.since import git, git_bytes
from torchlint.finding import Safety
from torchlint.harness.judging.verdict import Revision
from torchlint.harness.plan import Variant
from torchlint.source import Source, SourceError

_OPTION: Final = "--against"
_DIFF: Final = ("diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--name-status", "-z")


def _percent(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%?", value)
    if match is None:
        raise click.BadParameter(f"`{value}` is not a percentage such as 5%")
    return float(match[1]) / 100


against_options = all_of(
    click.option(
        _OPTION,
        metavar="REVISION",
        help="Compare the working tree with a git revision, instead of fixes with the script.",
    ),
    click.option(
        "--same-numbers",
        is_flag=True,
        help="With --against, fail if losses or parameters differ by more than rounding.",
    ),
    click.option(
        "--fail-slower",
        type=str,
        callback=_percent,
        metavar="PERCENT",
        help="With --against, fail only if a step is slower by more than this, as in 5%.",
    ),
)


@dataclass(frozen=True, slots=True)
class Against:
    """A revision as the original, with the working tree as the variant."""

    revision: Revision
    original: Variant
    tree: Variant

    def concerns(self, imported: frozenset[str], root: Path) -> bool:
        """Return whether a file that differs is imported from a project, or may be."""
        files = (*self.original.texts, *self.original.absent)
        inside = str(root) + os.sep
        return any(path in imported or not path.startswith(inside) for path in files)


def compared_with(options: Mapping[str, Any], script: Path) -> Against | None:
    """Return what `--against` asks for, None without it; raises a click error."""
    ref = options["against"]
    if ref is None:
        for name in ("same_numbers", "fail_slower"):
            if options[name]:
                raise click.UsageError(f"`{flag(name)}` needs `{_OPTION} REVISION`")
        return None
    if options["apply"]:
        raise click.UsageError(f"`{_OPTION}` makes no fixes, so there is nothing to --apply")
    home = str(script.resolve().parent)
    root = os.path.realpath(git(_OPTION, "rev-parse", "--show-toplevel", cwd=home).rstrip("\n"))
    commit = _commit(ref, root)
    texts, absent, others = _differences(commit, root)
    path = str(script.resolve())
    if path in absent:
        name = os.path.relpath(path, root)
        raise click.UsageError(f"`{_OPTION} {ref}`: {name} does not exist in that revision")
    original = Variant("all", (), Safety.EXACT, texts, absent=tuple(absent))
    judged = bool(options["same_numbers"])
    safety = Safety.CLOSE if judged else Safety.UNSAFE
    tree = Variant("tree", (), safety, {}, judged=judged)
    return Against(Revision(ref, commit, tuple(others)), original, tree)


def _commit(ref: str, root: str) -> str:
    """Return the commit that a name stands for; raises a usage error."""
    name = f"{ref}^{{commit}}"
    try:
        wanted = ("rev-parse", "--verify", "--quiet", "--end-of-options", name)
        return git(_OPTION, *wanted, cwd=root).strip()
    except click.ClickException:
        raise click.UsageError(
            f"`{_OPTION} {ref}`: git knows no such revision here (a shallow clone has only the "
            "newest: fetch more history)"
        ) from None


def _differences(commit: str, root: str) -> tuple[dict[str, str], list[str], list[str]]:
    """Return texts of a commit, files that it does not have, and others that differ from it."""
    texts: dict[str, str] = {}
    absent: list[str] = []
    others: list[str] = []
    fields = git(_OPTION, *_DIFF, commit, "--", cwd=root).split("\0")[:-1]
    for status, name in zip(fields[::2], fields[1::2], strict=True):
        path = os.path.join(root, name)  # noqa: PTH118
        if not name.endswith(".py"):
            others.append(name)
        elif status == "A":
            absent.append(path)
        else:
            texts[path] = _text(git_bytes(_OPTION, "show", f"{commit}:{name}", cwd=root), name)
    new = git(_OPTION, "ls-files", "--others", "--exclude-standard", "-z", cwd=root).split("\0")
    absent += [os.path.join(root, name) for name in new if name.endswith(".py")]  # noqa: PTH118
    return texts, absent, others


def _text(content: bytes, name: str) -> str:
    try:
        return Source.from_bytes(content, name).text
    except SourceError as error:
        raise click.ClickException(f"`{_OPTION}`: {name} of that revision: {error}") from None
