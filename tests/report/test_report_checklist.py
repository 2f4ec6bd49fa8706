"""The checklist as text, Markdown and JSON."""

from __future__ import annotations

import json

import pytest
from syrupy.assertion import SnapshotAssertion

from torchlint.audit import Audit, Row, Status
from torchlint.report.checklist import checklist, checklist_json, checklist_markdown
from torchlint.report.paint import Paint

WORKERS = Row(
    "input pipeline",
    "workers load batches",
    ("S0", "S3.2"),
    Status.MISSING,
    12,
    "the training process loads every batch itself (also line 14)",
    ("TL101",),
    "measured x1.6 with two workers on two CPU cores",
)
AUDIT = Audit(
    "train.py",
    (
        WORKERS,
        Row("input pipeline", "inputs normalized", ("S3.17",), Status.IN_USE, 1048, "`a | b`"),
        Row("evaluation", "inference mode", (), Status.NOT_APPLICABLE, None, "evaluates nothing"),
        Row(
            "managing the run",
            "early stopping",
            ("S1",),
            Status.MISSING,
            3,
            "runs on",
            (),
            "epochs",
        ),
        Row("managing the run", "batch size", (), Status.CANNOT_TELL, None, "known\nwhen it runs"),
    ),
)
NOTHING_TO_FIX = Audit("train.py", AUDIT.rows[1:])
NOTHING_MISSING = Audit("train.py", AUDIT.rows[1:3])
NOTHING_THERE = Audit("utils.py", AUDIT.rows[2:3])


def test_text(snapshot: SnapshotAssertion) -> None:
    assert checklist(AUDIT, Paint(width=80)) == snapshot


def test_markdown(snapshot: SnapshotAssertion) -> None:
    assert checklist_markdown(AUDIT) == snapshot


@pytest.mark.parametrize("width", [None, 80, 100, 200])
def test_no_line_is_longer_than_the_terminal(width: int | None) -> None:
    limit = min(width or 100, 120)
    assert all(len(line) <= limit for line in checklist(AUDIT, Paint(width=width)).splitlines())


def test_colours_change_nothing_else() -> None:
    from click import unstyle

    assert unstyle(checklist(AUDIT, Paint(color=True, width=80))) == checklist(
        AUDIT, Paint(width=80)
    )


@pytest.mark.parametrize(
    ("audit", "words"),
    [
        (AUDIT, "Next: `torchlint fix --unsafe-fixes train.py`"),
        (NOTHING_TO_FIX, "Next: decide which missing techniques you want"),
        (NOTHING_MISSING, "Next: nothing that torchlint can see is missing"),
        (NOTHING_THERE, "Next: audit the script that trains; this one does not."),
    ],
)
def test_the_last_line_says_what_to_do_next(audit: Audit, words: str) -> None:
    assert words in checklist(audit, Paint(width=120))


def test_json() -> None:
    found = json.loads(checklist_json([AUDIT]))
    assert (found["version"], found["script"]) == (1, "train.py")
    assert found["rows"][0] == {
        "family": "input pipeline",
        "technique": "workers load batches",
        "articles": ["S0", "S3.2"],
        "state": "missing",
        "line": 12,
        "why": WORKERS.why,
        "rules": ["TL101"],
        "gain": "measured x1.6 with two workers on two CPU cores",
    }
    assert found["rows"][2]["line"] is None
    assert found["rows"][2]["gain"] is None


def test_json_of_several_scripts_is_a_list() -> None:
    assert [each["script"] for each in json.loads(checklist_json([AUDIT, NOTHING_MISSING]))] == [
        "train.py",
        "train.py",
    ]
