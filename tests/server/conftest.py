from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from editor import Editor, editor

POISON = 'raise SystemExit("the server imported what it must not")\n'


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which an import of torch or numpy ends the process."""
    folder = tmp_path_factory.mktemp("poison")
    for name in ("torch", "numpy"):
        (folder / f"{name}.py").write_text(POISON)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path}


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the editor has open."""
    return tmp_path_factory.mktemp("workspace")


# Not for the session: what the editor runs is no business of the tests of other folders.
@pytest.fixture(scope="module")
def vscode(workspace: Path, environment: dict[str, str]) -> Iterator[Editor]:
    """Return an editor that can what VS Code can."""
    with editor(environment=environment) as opened:
        opened.initialize(workspace)
        yield opened
