"""The command `tune` as it is called wrongly, and what it prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cli_shell import Shell
from syrupy.assertion import SnapshotAssertion

from torchlint.harness.pace import LoaderSeen, Place
from torchlint.harness.trace import Failure
from torchlint.harness.tuning.report import (
    Decision,
    LoaderSite,
    Rate,
    SettingSearch,
    Trial,
    TuningReport,
)
from torchlint.report.paint import Paint
from torchlint.report.tuning import tuning_json, tuning_text

LOADER = LoaderSeen(
    place=Place("train.py", 12),
    maker="",
    dataset="Images",
    same_data=1,
    length=4096,
    passes=128,
    num_workers=0,
    prefetch_factor=None,
    pin_memory=False,
    batch_size=32,
    persistent_workers=False,
    draws=300,
    steps=300,
)


def trial(value: int, rate: float, steps: int = 128) -> Trial:
    return Trial(value, Rate(rate, rate * 0.97, rate * 1.02), 2, 0.4, 1.25, 300 << 20, None, steps)


def failed(value: int, failure: Failure) -> Trial:
    return Trial(value, None, failure=failure)


WORKERS = SettingSearch(
    "num_workers",
    0,
    (
        trial(0, 421.4),
        trial(2, 1380.0),
        trial(4, 1402.0),
        failed(8, Failure("crash", "OSError: too many open files", "data.py", 7)),
    ),
    best=4,
    choice=2,
)
PREFETCH = SettingSearch(
    "prefetch_factor", 2, (trial(2, 1380.0), trial(4, 1391.0)), best=4, choice=2
)
PINNING = SettingSearch("pin_memory", False, choice=False, not_tried="the script trains on the CPU")
BATCHES = SettingSearch(
    "batch_size",
    32,
    (
        trial(32, 1380.0),
        trial(64, 2010.0, 64),
        failed(128, Failure("memory", "MemoryError", "train.py", 20)),
    ),
    best=64,
    choice=64,
)
REPORT = TuningReport(
    script="train.py",
    args=("--epochs", "3"),
    device="cpu",
    torch="2.13.0",
    cores=2,
    loader=LOADER,
    others=(),
    optimizer="AdamW",
    learning_rate=0.001,
    runs=17,
    seconds=71.6,
    budget=300.0,
    noise=0.02,
    settings=(WORKERS, PREFETCH, PINNING, BATCHES),
)
SITE = LoaderSite("train.py", 12, "`loader`", {})
DECIDED = LoaderSite(
    "train.py",
    12,
    "`loader`",
    {"num_workers": Decision(5, 'parser.add_argument("--workers", type=int)', "--workers")},
)


def test_the_report_names_the_value_to_take(snapshot: SnapshotAssertion) -> None:
    assert tuning_text(REPORT, SITE, (), Paint()) == snapshot


def test_the_last_line_agrees_with_the_table() -> None:
    kept = replace(WORKERS, choice=0)
    said = tuning_text(
        replace(REPORT, settings=(kept, PREFETCH, PINNING, BATCHES)), SITE, (), Paint()
    )
    assert said.endswith(
        "\nNothing to write: a batch of 64 gives 1.46x, but changes the optimization; no other "
        "setting is measurably better.\n"
    )
    assert (
        "num_workers  keep 0: not decided, as noise is larger than the gain (best other: 4, "
        in said
    )


def test_loader_and_network_alone_show_what_workers_can_bring() -> None:
    alone = replace(trial(0, 400.0), wait_share=0.9, loading=0.8)
    workers = replace(WORKERS, trials=(alone, trial(2, 1380.0)))
    report = replace(REPORT, settings=(workers, PREFETCH, PINNING, BATCHES))
    assert (
        "  alone, the loader gives 500 samples/s in the script's own process, and the network "
        "takes 4000: workers can bring 10x at most\n"
    ) in tuning_text(report, SITE, (), Paint())
    found = json.loads(tuning_json(report, SITE, ()))["settings"][0]["trials"]
    assert [each["alone"] for each in found] == [
        {"loader": pytest.approx(500), "network": pytest.approx(4000)},
        None,
    ]


def test_the_report_says_what_was_written_and_what_is_decided_elsewhere() -> None:
    written = tuning_text(REPORT, SITE, ("num_workers",), Paint())
    assert written.endswith("Wrote num_workers=2 at train.py:12.\n")
    assert tuning_text(REPORT, DECIDED, (), Paint()).endswith(
        "num_workers is not written: train.py:5 sets it "
        '(`parser.add_argument("--workers", type=int)`): pass `--workers 2`\n'
    )


def test_the_json_has_every_value_with_its_interval() -> None:
    document = json.loads(tuning_json(REPORT, DECIDED, ()))
    workers, _, pinning, _ = document["settings"]
    assert workers["choice"] == 2
    assert workers["speedup"]["ratio"] == pytest.approx(1380 / 421.4)
    assert workers["decided_by"]["option"] == "--workers"
    assert [each["value"] for each in workers["trials"]] == [0, 2, 4, 8]
    assert workers["trials"][3]["failure"]["message"] == "OSError: too many open files"
    assert (pinning["trials"], pinning["not_tried"]) == ([], "the script trains on the CPU")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("train.py", "--budget", "1"), "invalid value for '--budget'"),
        (("train.py", "--device", "tpu"), "no device `tpu`: take auto, cpu, cuda, cuda:N, "),
        (("notes.ipynb",), "notes.ipynb is a notebook: `jupyter nbconvert --to script"),
    ],
)
def test_a_wrong_call_is_one_line(quick: Shell, arguments: tuple[str, ...], line: str) -> None:
    for name in ("train.py", "notes.ipynb"):
        quick.write(name, "{}")
    done = quick.run("tune", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr


def test_a_folder_of_no_script_is_refused(quick: Shell, tmp_path: Path) -> None:
    assert quick.run("tune", str(tmp_path)).returncode == 2


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--nproc-per-node", "2"), "options for several processes need --launcher torchrun"),
        (("--launcher", "torchrun"), "--launcher needs --nproc-per-node N"),
        (
            ("--launcher", "torchrun", "--nproc-per-node", "2", "--nnodes", "2"),
            "several hosts need --rdzv-endpoint HOST:PORT",
        ),
        (
            (
                *("--launcher", "torchrun", "--nproc-per-node", "2", "--nnodes", "2"),
                *("--rdzv-endpoint", "localhost:1", "--quick"),
            ),
            "run without --quick and --budget on several",
        ),
    ],
)
def test_a_launch_that_lacks_something_says_what(
    quick: Shell, arguments: tuple[str, ...], line: str
) -> None:
    quick.write("train.py", "print()\n")
    done = quick.run("verify", "train.py", *arguments)
    assert done.returncode == 2
    assert line in done.stderr
