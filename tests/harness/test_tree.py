"""The project's files: what counts as changed in them."""

from __future__ import annotations

from pathlib import Path

from torchlint.harness.runs.tree import changes, snapshot


def test_what_was_written_made_or_removed_is_named(tmp_path: Path) -> None:
    for name in ("kept", "written", "removed"):
        (tmp_path / name).write_text("before")
    before = snapshot(tmp_path, tmp_path / "working")
    (tmp_path / "written").write_text("later")
    (tmp_path / "removed").unlink()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "made").write_text("")
    assert changes(before, tmp_path, tmp_path / "working") == ("removed", "runs/made", "written")


def test_the_harness_own_folder_in_the_project_is_no_change(tmp_path: Path) -> None:
    working = tmp_path / "tmp" / "working"
    working.mkdir(parents=True)
    before = snapshot(tmp_path, working)
    (working / "trace.json").write_text("{}")
    assert changes(before, tmp_path, working) == ()
