from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from torchlint.engine import WriteError, write_atomic
from torchlint.source import Source

OLD = b"x = 1\r\n"
NEW = Source("t.py", "x = 2\r\n")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "t.py"
    path.write_bytes(OLD)
    return path


def _names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def test_the_file_is_replaced_and_nothing_else_is_left(script: Path) -> None:
    write_atomic(script, NEW, OLD)
    assert script.read_bytes() == b"x = 2\r\n"
    assert _names(script.parent) == ["t.py"]


@pytest.mark.parametrize("name", ["a" * 252 + ".py", "é" * 126 + ".py", "\n \x1b.py", "-rf.py"])
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(OLD)
    write_atomic(path, NEW, OLD)
    assert path.read_bytes() == b"x = 2\r\n"
    assert _names(tmp_path) == [name]


@pytest.mark.parametrize("mode", [0o755, 0o640, 0o600])
def test_the_mode_stays(script: Path, mode: int) -> None:
    script.chmod(mode)
    write_atomic(script, NEW, OLD)
    assert script.stat().st_mode & 0o777 == mode


def test_a_link_stays_a_link(script: Path) -> None:
    link = script.with_name("link.py")
    link.symlink_to("t.py")
    write_atomic(link, NEW, OLD)
    assert link.is_symlink()
    assert script.read_bytes() == b"x = 2\r\n"


def test_a_file_that_changed_is_not_written(script: Path) -> None:
    script.write_bytes(b"x = 3\n")
    with pytest.raises(WriteError, match="has changed since it was read"):
        write_atomic(script, NEW, OLD)
    assert script.read_bytes() == b"x = 3\n"
    assert _names(script.parent) == ["t.py"]


def test_a_file_that_is_gone_is_not_made_again(script: Path) -> None:
    script.unlink()
    with pytest.raises(WriteError, match="No such file"):
        write_atomic(script, NEW, OLD)
    assert _names(script.parent) == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_leaves_the_old_file(
    script: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(WriteError, match=r"t\.py was not written: No space left on device"):
        write_atomic(script, NEW, OLD)
    monkeypatch.undo()
    assert script.read_bytes() == OLD
    assert _names(script.parent) == ["t.py"]


def test_a_text_that_the_encoding_lacks_is_not_written(script: Path) -> None:
    with pytest.raises(WriteError, match="is not ascii text"):
        write_atomic(script, Source("t.py", "x = 'é'\n", "ascii"), OLD)
    assert script.read_bytes() == OLD


def _access_list(user: int) -> bytes:
    """Return an access list as Linux keeps it: a user may read and write beside the owner."""
    everybody = 0xFFFFFFFF
    entries = [(1, 6, everybody), (2, 6, user), (4, 4, everybody), (16, 6, everybody)]
    packed = [struct.pack("<HHI", *entry) for entry in [*entries, (32, 4, everybody)]]
    return struct.pack("<I", 2) + b"".join(packed)


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="extended attributes are Linux's")
@pytest.mark.parametrize(
    ("name", "value"),
    [("user.comment", b"kept"), ("system.posix_acl_access", _access_list(4242))],
    ids=["comment", "access list"],
)
def test_attributes_and_access_lists_stay(script: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(script, name, value)
    except OSError as error:
        pytest.skip(f"this file system keeps no {name}: {error.strerror}")
    before = script.stat().st_mode
    write_atomic(script, NEW, OLD)
    assert script.read_bytes() == b"x = 2\r\n"
    assert os.getxattr(script, name) == value
    assert script.stat().st_mode == before


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="extended attributes are Linux's")
def test_a_file_whose_access_list_would_be_lost_is_not_written(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "listxattr", lambda _: ["security.selinux", "system.posix_acl_access"])
    monkeypatch.setattr(os, "getxattr", lambda *_: b"")
    monkeypatch.setattr(os, "setxattr", refuse)
    with pytest.raises(WriteError, match=r"posix_acl_access cannot be kept: Operation not"):
        write_atomic(script, NEW, OLD)
    monkeypatch.undo()
    assert script.read_bytes() == OLD
    assert _names(script.parent) == ["t.py"]
