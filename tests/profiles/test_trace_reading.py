"""Files that are no traces, and traces of real size."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from profiles.traces import loop

from torchlint.profiles import recording
from torchlint.profiles.reading import read_trace
from torchlint.profiles.recording import ProfileError


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is not JSON as torch.profiler writes it"),
        (b"hello", "it is not JSON as torch.profiler writes it"),
        (b"{}", "it has no list `traceEvents`"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel"', "it is not JSON"),
        (b'{"traceEvents": [' + b"[" * 100_000, "it is not JSON"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel"}]}', "an event is not as torch.profiler"),
        (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": "x"}]}', "an event is not as"),
        (b'{"traceEvents": []}', "is a trace without events"),
        (b"[]", "is a trace without events"),
        (
            gzip.compress(b'{"traceEvents": [' + b" " * 99_999, mtime=0)[:80],
            "it ends early or is damaged",
        ),
        (b"\x1f\x8b\x08\x00nonsense", "it ends early or is damaged"),
        (b"SQLite format 3\0" + b"\0" * 200, "it cannot be read as SQLite"),
    ],
)
def test_a_file_that_is_no_trace_is_named_with_the_reason(
    tmp_path: Path, data: bytes, said: str
) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(data)
    with pytest.raises(ProfileError) as caught:
        read_trace(file)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_other_databases_and_reports_that_were_not_exported_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.sqlite"
    with closing(sqlite3.connect(file)) as base:
        base.execute("CREATE TABLE notes (text TEXT)")
    with pytest.raises(ProfileError, match="Nsight Systems did not export it"):
        read_trace(file)
    report = tmp_path / "report.nsys-rep"
    report.write_bytes(b"anything")
    with pytest.raises(ProfileError, match=r"--type sqlite report\.nsys-rep"):
        read_trace(report)


def test_columns_that_a_version_of_nsight_lacks_are_not_needed(tmp_path: Path) -> None:
    file = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(file)) as base:
        base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT)")
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 3000)")
        base.commit()
    assert list(read_trace(file).work[0]) == [(1.0, 3.0, 0)]


def test_a_document_may_be_a_list_and_events_may_be_anything(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    events = [3, None, {"ph": "X"}, {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "tid": "t"}]
    file.write_text(json.dumps(events), encoding="utf-8")
    assert read_trace(file).names == ["a"]


def test_more_events_than_the_limit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_MOST", 10)
    with pytest.raises(ProfileError, match="more than 10 events; record fewer steps"):
        read_trace(loop().save(tmp_path / "trace.json"))


def test_a_trace_is_read_piece_by_piece(tmp_path: Path) -> None:
    trace = loop()
    for number in range(100_000):
        trace.operator("aten::mul", 5000 + number, 5000.5 + number)
    file = trace.save(tmp_path / "trace.json")
    assert file.stat().st_size > 15_000_000
    tracemalloc.start()
    found = read_trace(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(map(len, found.ranges.values())) > 100_000
    assert peak < 10_000_000
