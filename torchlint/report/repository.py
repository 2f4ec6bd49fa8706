"""Where a report is read: the root of the repository, and links to its lines."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from torchlint.report.identity import relative_path


def repository_root() -> Path:
    """Return the folder that CI's paths are relative to, else the current one."""
    given = os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR")
    return Path(given) if given else Path.cwd()


def in_workspace() -> bool:
    """Return whether this is a job on GitHub, whose paths count from its workspace."""
    return bool(os.environ.get("GITHUB_WORKSPACE"))


def repository_path(path: str) -> str:
    """Return a path relative to the root of the repository if it lies in it."""
    if path == "-" or not in_workspace():
        return path
    relative = relative_path(path, repository_root())
    return path if relative.startswith("../") else relative


def line_link(path: str, row: int) -> str | None:
    """Return the address of a line of the checked commit on GitHub or GitLab, None elsewhere."""
    relative = relative_path(path, repository_root())
    place = f"{quote(relative)}#L{row}"
    server, name, commit = (
        os.environ.get(f"GITHUB_{part}", "") for part in ("SERVER_URL", "REPOSITORY", "SHA")
    )
    if server and name and commit:
        return f"{server}/{name}/blob/{commit}/{place}"
    project, commit = (os.environ.get(f"CI_{part}", "") for part in ("PROJECT_URL", "COMMIT_SHA"))
    return f"{project}/-/blob/{commit}/{place}" if project and commit else None
