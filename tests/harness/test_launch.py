"""Scripts of several processes under torchrun, with gloo on the CPU."""

from __future__ import annotations

import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.forks import address, start
from harness.scripts import PLAIN, write

from torchlint.finding import Safety
from torchlint.harness.judging.parity import Parity
from torchlint.harness.plan import ORIGINAL, Launcher, Mode, Plan, Task, Variant
from torchlint.harness.runs import process, torchrun
from torchlint.harness.runs.runner import Runner
from torchlint.harness.runs.torchrun import first_failure
from torchlint.harness.session import ScriptError, Session
from torchlint.harness.trace import Failure, Trace
from torchlint.profiles.idle import idle_time
from torchlint.profiles.reading import read_trace

TWO = Launcher(2)


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork torchrun and its ranks, where what is asked is what happens in them."""
    if sys.platform == "linux":
        address()
        monkeypatch.setattr(process, "start", start)


RANKS = """
    import os, subprocess, sys, time

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    if __name__ == "__main__":
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        torch.manual_seed(0)
        net = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(1000):
            x = torch.full((4, 1), 1.0 + rank)
            if rank == 1:
                time.sleep(0.05)
            if "fail" in sys.argv and rank == 1 and step == 3:
                raise ValueError("no such file\\nfor this rank")
            if "die" in sys.argv and rank == 1 and step == 3:
                os.kill(os.getpid(), 9)
            if "hang" in sys.argv and step == 3:
                child = subprocess.Popen(["sleep", "1000"])
                with open(f"{sys.argv[2]}/rank-{rank}/child", "w") as file:
                    file.write(str(child.pid))
                time.sleep(1000)
            optimizer.zero_grad()
            net(x).mean().backward()
            optimizer.step()
    """


def launched(folder: Path, text: str, *args: str, timeout: float = 120, **more: Any) -> Trace:
    script = write(folder, text)
    task = Task(
        script=str(script),
        args=args,
        root=str(folder),
        folder=str(folder / ".run"),
        mode="time",
        steps=6,
        warmup=2,
        seed=0,
        recording=str(folder),
    )
    task = replace(task, **more)
    return torchrun.run(task, TWO, device="cpu", timeout=timeout)


@pytest.mark.usefixtures("forks")
def test_ranks_that_look_only_for_so_long_end_with_the_same_step(tmp_path: Path) -> None:
    late = """
    import os, time
    time.sleep(2 * float(os.environ["LOCAL_RANK"]))
    """
    trace = launched(tmp_path, late + RANKS, mode="numbers", steps=900, warmup=0, seconds=4)
    assert trace.failure is None
    assert (trace.ending, trace.joined) == ("full", True)
    assert trace.taken == len(trace.losses)
    assert 4 < trace.taken < 900


def test_the_slowest_rank_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    trace = launched(tmp_path, RANKS)
    assert list(temporary.glob("torchelastic_*")) == []
    assert trace.failure is None
    assert (trace.ending, trace.taken, trace.joined) == ("full", 8, True)
    assert len(trace.rank_times) == 2
    assert sum(trace.durations) / 6 == pytest.approx(max(trace.rank_times))
    assert min(trace.rank_times) > 0.04


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    ("how", "kind", "message", "line"),
    [
        ("fail", "crash", "rank 1 of 2: ValueError: no such file for this rank", 18),
        (
            "die",
            "memory",
            "rank 1 of 2: the system killed it, most likely because memory ran out",
            0,
        ),
    ],
)
def test_a_rank_that_fails_is_named_with_its_error(
    tmp_path: Path, how: str, kind: str, message: str, line: int
) -> None:
    failure = launched(tmp_path, RANKS, how).failure
    assert failure is not None
    assert (failure.kind, failure.message, failure.line) == (kind, message, line)


def test_ctrl_c_ends_all_ranks_and_what_they_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_and_interrupt(*rest: object) -> bool:
        while len(list(tmp_path.glob(".run/rank-*/child"))) < 2:
            time.sleep(0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "wait", wait_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        launched(tmp_path, RANKS, "hang", str(tmp_path / ".run"))
    files = [*tmp_path.glob(".run/rank-*/pid"), *tmp_path.glob(".run/rank-*/child")]
    assert len(files) == 4
    for file in files:
        while _runs(int(file.read_text())):
            time.sleep(0.05)


@pytest.mark.usefixtures("forks")
def test_only_the_first_rank_writes_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "trace.json.gz"
    project = tmp_path / "project"
    project.mkdir()
    trace = launched(project, RANKS, mode="profile", profile=str(file))
    assert (trace.failure, trace.profile) == (None, str(file))
    found = idle_time(read_trace(file))
    assert found.steps == 7
    frames = [name for cause in found.causes for name in cause.stack]
    assert any("train.py(" in name for name in frames)
    assert not any("sleep" in name for name in frames)


def test_what_takes_too_long_is_told_so(tmp_path: Path) -> None:
    failure = launched(tmp_path, RANKS, timeout=0.5).failure
    assert failure is not None
    assert (failure.kind, failure.line) == ("timeout", 0)


def _runs(number: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.mark.usefixtures("forks")
def test_the_rewrite_of_data_parallel_has_the_numbers_of_the_original(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "fixtures" / "rules" / "tl701_data_parallel"
    script = write(tmp_path, (folder / "slow.py").read_text(encoding="utf-8"))
    fast = (folder / "fast.py").read_text(encoding="utf-8")
    variant = Variant("rule", ("TL701",), Safety.UNSAFE, {str(script): fast})
    wrapped = "model = DistributedDataParallel(model, device_ids=[LOCAL_RANK] if on_gpu else None)"
    assert wrapped in fast
    bare = replace(variant, texts={str(script): fast.replace(wrapped, "pass")})
    plan = Plan(script, ("--epochs", "1"), steps=8, warmup=1, device="cpu", launcher=TWO)
    runner = Runner(plan, None)
    first = runner.run(ORIGINAL, "numbers")
    parity = Parity(
        lambda variant, mode, shift: runner.run(variant, mode, shift=shift),
        first,
        lambda runs: runs <= 3,
    )
    fixed = runner.run(variant, "numbers")
    comparison = parity.compare(variant, fixed)
    wrong = parity.compare(bare, runner.run(bare, "numbers"))
    runner.close()
    assert (first.joined, fixed.joined) == (False, True)
    assert comparison is not None
    assert (comparison.method, comparison.word, comparison.kept) == ("aligned", "close", True)
    assert comparison.losses == 9
    assert wrong is not None
    assert (wrong.method, wrong.word, wrong.kept) == ("ranks", "different", False)


def test_a_failure_that_follows_from_another_is_not_the_one_told() -> None:
    failures = [
        (0, 1.0, Failure("crash", "RuntimeError: Connection closed by peer [127.0.0.1]")),
        (1, 2.0, Failure("crash", "ValueError: no data", "train.py", 3)),
    ]
    told = first_failure(failures, 2)
    assert (told.message, told.line) == ("rank 1 of 2: ValueError: no data", 3)
    assert first_failure(failures[:1], 2).message.startswith("rank 0 of 2: RuntimeError")


def test_several_hosts_meet_at_an_endpoint_under_the_name_of_the_run() -> None:
    arguments = Launcher(4, 2, "host:29500").arguments("run-3")
    assert arguments[:2] == ("--nnodes", "2")
    assert arguments[-4:] == ("--rdzv-id", "torchlint-run-3", "--nproc-per-node", "4")
    assert "--standalone" in TWO.arguments("run-3")


def two_hosts() -> Launcher:
    """Return how each of two hosts that are this machine launches."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return Launcher(1, 2, f"localhost:{free.getsockname()[1]}")


@pytest.mark.usefixtures("forks")
def test_a_script_that_makes_no_group_is_not_for_several_hosts(tmp_path: Path) -> None:
    plan = Plan(write(tmp_path, PLAIN), steps=6, warmup=2, device="cpu", launcher=two_hosts())

    def told(_: int) -> str:
        with Session(plan) as session, pytest.raises(ScriptError) as error:
            session.survey()
        return error.value.failure.message

    with ThreadPoolExecutor(2) as hosts:
        first, second = hosts.map(told, range(2))
    assert first == second
    assert first.endswith("verify it without --nnodes")


@pytest.mark.usefixtures("forks")
def test_two_hosts_that_meet_on_one_machine_train_together(tmp_path: Path) -> None:
    script = write(tmp_path, RANKS)
    host = two_hosts()

    def on_host(name: str, mode: Mode) -> Trace:
        task = Task(
            script=str(script),
            args=(),
            root=str(tmp_path),
            folder=str(tmp_path / name / mode),
            mode=mode,
            steps=6,
            warmup=2,
            seed=0,
            recording=str(tmp_path),
            reference=str(tmp_path / name / "parameters.pt"),
        )
        return torchrun.run(task, host, device="cpu", timeout=120)

    def on_both(mode: Mode) -> tuple[Trace, Trace]:
        with ThreadPoolExecutor(2) as hosts:
            first, second = hosts.map(on_host, ["first", "second"], [mode] * 2)
        assert (first.failure, first.joined, first.taken) == (None, True, 8)
        return first, second

    first, second = on_both("time")
    # Rank 1 sleeps in each step, on one of them: both know, and decide alike.
    assert first == second
    assert len(first.rank_times) == 2
    assert sum(first.durations) / 6 == pytest.approx(max(first.rank_times))
    first, second = on_both("numbers")
    # Their samples are 1 and 2, and a loss is that of both.
    assert first.losses == second.losses
    assert first.losses[1] == pytest.approx(first.losses[0] - 0.1 * 1.5**2)
    # Each keeps the parameters of the first rank that it sees, and compares them.
    assert first.parameters == second.parameters
    assert first.parameters is not None
    assert first.parameters.count == 1
