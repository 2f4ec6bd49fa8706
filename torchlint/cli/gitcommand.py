"""Calls of git for an option, whose errors are one line each."""

from __future__ import annotations

import subprocess
from typing import Final

import click

_QUIET: Final = (
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.quotePath=false"),
)
"""Settings with which git starts no other program."""


def git(option: str, *arguments: str, cwd: str | None = None) -> str:
    """Return what a git command prints; raises a click error that names the option."""
    return git_bytes(option, *arguments, cwd=cwd).decode("utf-8", "surrogateescape")


def git_bytes(option: str, *arguments: str, cwd: str | None = None) -> bytes:
    """Return the bytes that a git command prints; raises a click error that names the option."""
    try:
        done = subprocess.run(
            ["git", *_QUIET, *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise click.ClickException(f"`{option}` needs git, which is not installed") from None
    except OSError as error:
        raise click.ClickException(f"`{option}` needs git: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        raise click.ClickException(f"`{option}`: git: {said.removeprefix('fatal: ')}")
    return done.stdout
