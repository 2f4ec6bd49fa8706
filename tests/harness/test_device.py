"""Figures from a device that runs behind the host: a pretend one, whose true step time is known."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pytest
from harness.pretend.build import library, unfit
from harness.scripts import run_by, write

from torchlint.finding import Safety
from torchlint.harness.judging.anatomy import bound
from torchlint.harness.judging.assessment import syncs_per_step
from torchlint.harness.judging.statistics import Speedup, speedup
from torchlint.harness.pace import Pace
from torchlint.harness.plan import Mode, Plan, Variant
from torchlint.harness.runs.forkserver import ForkServer
from torchlint.harness.runs.process import environment
from torchlint.harness.session import Session
from torchlint.harness.trace import Trace

pytestmark = pytest.mark.skipif(bool(unfit()), reason=unfit() or "it can be built")

OFF = 0.03
"""The share of the truth by which a ratio may be off."""

SCRIPT = """
    import json, sys
    import torch
    from harness.pretend import accelerator
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    accelerator.configure(kernel=KERNEL, byte=BYTE)
    MUTANT
    device = torch.device("pretend", INDEX)

    class Numbers(Dataset):
        def __len__(self):
            return 4096
        def __getitem__(self, index):
            accelerator.work(ITEM)
            return torch.full((16,), index / 4096)

    def tell():
        asked = accelerator.launches, accelerator.copies
        counts = [[ask(at) for at in range(2)] for ask in asked]
        print(json.dumps([accelerator.done_at(), *counts]), flush=True)

    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(16, 16) for _ in range(LAYERS)), nn.Linear(16, 1)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for epoch in range(100):
        for x in DataLoader(Numbers(), 8, pin_memory=PINNED):
            tell()
            x = x.to(device, non_blocking=ASYNCHRONOUS)
            accelerator.work(HOST)
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            SYNC
    """
PLAIN = {
    "KERNEL": 3e-4,
    "BYTE": 0.0,
    "HOST": 0.0,
    "MUTANT": "",
    "INDEX": 0,
    "ITEM": 0.0,
    "LAYERS": 10,
    "PINNED": True,
    "ASYNCHRONOUS": True,
    "SYNC": "",
}


BOUND: dict[str, dict[str, Any]] = {
    "device": {},
    "data": {"ITEM": 2e-3, "KERNEL": 1e-5},
    "copies": {"BYTE": 4e-5},
    "launches": {"KERNEL": 1e-7, "LAYERS": 40},
    "reads": {"SYNC": "loss.item()", "HOST": 5e-3},
}
"""Scripts, and what a step of each waits for."""


class Told(NamedTuple):
    """What the device itself counted until a step."""

    done_at: float
    launches: list[int]
    copies: list[int]


class Seen(NamedTuple):
    trace: Trace
    steps: list[Told]
    script: list[str]

    @property
    def truth(self) -> float:
        """The seconds of a step, by the device's own bookkeeping."""
        moments = [told.done_at for told in self.steps[3:]]
        return fmean(later - sooner for sooner, later in itertools.pairwise(moments))

    def per_step(self, index: int) -> tuple[int, int]:
        """Return the launches and the copies of a step."""
        first, last = self.steps[-2:]
        launches = last.launches[index] - first.launches[index]
        return launches, last.copies[index] - first.copies[index]


Look = Callable[..., Seen]


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Look]:
    """A function that runs the script once, with some of its words changed."""
    library()
    home = tmp_path_factory.mktemp("pretend")
    variables = environment("auto", home)
    variables["PYTHONPATH"] = str(Path(__file__).parents[1])
    modules = ("torch", "torch._dynamo", "harness.pretend.accelerator")
    server = ForkServer(modules, variables, verbose=False)
    number = itertools.count()

    @functools.cache
    def look(mode: Mode = "time", text: str = SCRIPT, **words: Any) -> Seen:
        for word, value in {**PLAIN, **words}.items():
            text = text.replace(word, str(value))
        folder = home / str(next(number))
        folder.mkdir()
        trace = run_by(server, write(folder, text), mode, steps=12, warmup=4)
        lines = (folder / ".torchlint-run/stdout").read_text(encoding="utf-8").splitlines()
        script = (folder / "train.py").read_text(encoding="utf-8").splitlines()
        return Seen(trace, [Told(*json.loads(line)) for line in lines], script)

    yield look
    server.close()


def gain(before: Seen, after: Seen) -> Speedup:
    for seen in (before, after):
        assert seen.trace.failure is None, seen.trace.failure
    return speedup([[before.trace.durations]], [[after.trace.durations]])


def is_true(before: Seen, after: Seen) -> bool:
    """Return whether the ratio is the true one, and each step as long as it was."""
    ratio = gain(before, after).ratio / (before.truth / after.truth)
    return near(ratio, 1) and all(
        near(seconds, seen.truth)
        for seen in (before, after)
        for seconds in seen.trace.durations[1:]
    )


def near(measured: float, truth: float) -> bool:
    return abs(measured / truth - 1) < OFF


WAITING = {"HOST": 2e-3, "SYNC": "loss.item()"}
BLOCKING = {"HOST": 2e-3, "BYTE": 4e-6, "ASYNCHRONOUS": False}
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "half the work": ({"LAYERS": 20}, {}, 1.83),
    "more work": ({}, {"LAYERS": 12}, 0.86),
    "a sync less": (WAITING, {**WAITING, "SYNC": ""}, 1.1),
    "a copy that does not wait": (BLOCKING, {**BLOCKING, "ASYNCHRONOUS": True}, 1.1),
    "a loader that is hidden": ({"ITEM": 5e-4}, {}, 1.0),
    "a loader that is not hidden": ({"ITEM": 5e-3}, {}, 1.94),
    "nothing": ({}, {}, 1.0),
}
"""What was changed, with the words of the script before and after, and about the gain."""


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("row", ROWS)
def test_a_ratio_of_step_times_is_the_devices_own(look: Look, row: str, index: int) -> None:
    words, others, about = ROWS[row]
    before, after = look(INDEX=index, **words), look(INDEX=index, **others)
    assert before.truth / after.truth == pytest.approx(about, rel=0.05)
    assert is_true(before, after)


def test_the_truth_is_a_number_of_kernels(look: Look) -> None:
    seen = look(INDEX=1)
    launches, copies = seen.per_step(1)
    assert (launches, copies) == (72, 1)
    assert seen.per_step(0) == (0, 0)
    assert seen.truth == pytest.approx(launches * 3e-4 + copies * 1e-4)


MUTANTS = {
    "no wait": "Device.wait = lambda self: None",
    "waits for the first device only": "Device.wait = lambda self: Backend('pretend').wait(0)",
    "events of the first device": """
    event = Backend.event
    Backend.event = lambda self, index, stream: event(self, 0, self.stream(0))""",
    "the host's clock": """
    Device.mark = lambda self: accelerator.now()
    Device.spans = lambda self, marks: [b - a for a, b in zip(marks, marks[1:])]""",
    "the queue's end in no step": """
    Backend.has_events = lambda self, index: False
    Device.wait = lambda self: None""",
}
"""Mistakes of the harness, which these scripts must show."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_harness_that_measures_wrongly_is_caught(look: Look, mutant: str) -> None:
    imported = "from torchlint.harness.child.device import Backend, Device\n"
    wrong = {"MUTANT": f"{imported}    {MUTANTS[mutant]}", "INDEX": 1}
    before, after = look(**{**WAITING, **wrong}), look(**{**WAITING, "SYNC": "", **wrong})
    assert after.trace.failure is not None or not is_true(before, after)


WITHOUT_EVENTS = """from torchlint.harness.child.device import Backend
    Backend.has_events = lambda self, index: False"""


def test_a_device_without_events_is_timed_by_the_whole_window(look: Look) -> None:
    words = {"MUTANT": WITHOUT_EVENTS, "INDEX": 1}
    before, after = look(LAYERS=20, **words), look(**words)
    assert not before.trace.device_clock
    assert is_true(before, after)


def test_waiting_for_data_counts_only_while_the_device_is_idle(look: Look) -> None:
    free, hidden, seen = (look(INDEX=1, ITEM=cost) for cost in (0.0, 5e-4, 5e-3))
    share = [(it.trace.waited or 0.0) / sum(it.trace.durations) for it in (free, hidden, seen)]
    assert share[0] == 0
    assert share[1] < 0.02
    assert share[2] == pytest.approx(1 - free.truth / seen.truth, abs=0.02)


def test_memory_is_that_of_all_devices(look: Look) -> None:
    here, there = look(INDEX=0).trace, look(INDEX=1).trace
    assert here.device_memory == there.device_memory
    assert here.device_memory is not None
    assert here.device_memory > 10 * 16 * 16 * 4


def test_the_device_of_a_run_is_named(look: Look) -> None:
    assert look(INDEX=1).trace.machine == {"indices": [1], "names": ["Pretend 1"], "count": 2}


@pytest.mark.parametrize("index", [0, 1])
def test_the_pace_and_the_timeline_have_the_devices_time(look: Look, index: int) -> None:
    pace = Pace.from_json(look("pace", INDEX=index, ITEM=5e-3).trace.pace or {})
    plain = look("pace", INDEX=index)
    truth = look(INDEX=index).truth
    assert near(fmean(Pace.from_json(plain.trace.pace or {}).seconds[4:]), truth)
    assert near(sum(pace.seconds[5:]), sum(pace.waits[5:]) + truth * len(pace.waits[5:]))
    steps = look("timeline", INDEX=index).trace
    assert steps.device_clock
    assert near(fmean(steps.durations[1:]), truth)
    assert {phase.name for phase in steps.phases} == {"data", "forward", "backward", "optimizer"}


QUIET = "import warnings; warnings.filterwarnings('ignore')"


@pytest.mark.parametrize("noise", ["", QUIET], ids=["", "without warnings"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_wait_is_counted_once_at_its_line(look: Look, count: int, noise: str) -> None:
    wait = "loss.item()" + "; loss.cpu()" * (count - 1)
    seen = look("syncs", SYNC=wait, MUTANT=f"accelerator.as_cuda(); {noise}")
    assert seen.trace.failure is None
    assert seen.trace.sync_steps == 12
    waits = [(Path(site.file).name, site.line, site.count) for site in seen.trace.syncs]
    line = 1 + [text.strip() for text in seen.script].index(wait)
    assert [(name, at) for name, at, _ in waits] == [("train.py", line)] * len(waits)
    assert sum(times for *_, times in waits) == 12 * count


@pytest.mark.parametrize("by", BOUND)
def test_what_a_step_waits_for_is_named(look: Look, by: str) -> None:
    words = BOUND[by]
    syncs = look("syncs", **words).trace
    found = bound([look(**words).trace] * 2, syncs, syncs_per_step(syncs))
    assert found is not None
    assert found.by == by
    assert (found.share is not None) is (by in ("data", "copies"))
    assert (found.reached is not None) is (by == "device")


LITTLE = "accelerator.configure(memory=20_000, others={})"


@pytest.mark.parametrize("others", [0, 3 << 30])
def test_what_others_have_of_the_memory_is_told_where_there_is_too_little(
    look: Look, others: int
) -> None:
    failure = look(LAYERS=20, MUTANT=LITTLE.format(others)).trace.failure
    assert failure is not None
    assert (failure.kind, failure.shared) == ("memory", others > 0)
    assert ("other programs have 3.0 of its 3.0 GiB" in failure.message) is failure.shared


def test_peaks_of_each_device_are_told_from_the_window_on(look: Look) -> None:
    trace = look(INDEX=1, MUTANT="torch.ones(1 << 20, device='pretend:0').sum().item()").trace
    ((taken, reserved),) = trace.memories[-1:]
    assert reserved == taken
    assert sum(most for most, _ in trace.memories) == trace.device_memory
    assert trace.device_memory is not None
    assert trace.device_memory < 4 << 20


COLD = """
    started = accelerator.now()
    begin = nn.Module.__call__
    def colder(*args, **kwargs):
        cold = accelerator.done_at() < started + 0.6
        accelerator.configure(kernel=KERNEL * (2 if cold else 1))
        return begin(*args, **kwargs)
    nn.Module.__call__ = colder"""


def test_a_window_begins_when_the_device_has_reached_its_clock(
    look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    text = SCRIPT
    for word, value in {**PLAIN, "LAYERS": 3, "MUTANT": COLD.replace("KERNEL", "3e-4")}.items():
        text = text.replace(word, str(value))
    script = write(tmp_path, text)
    fixed = Variant("rule", ("TL201",), Safety.EXACT, {str(script): script.read_text() + "# same"})
    with Session(Plan(script, steps=8, warmup=2, rounds=2)) as session:
        report = session.measure([fixed])
    warm = look(LAYERS=3).truth
    assert report.warmup * 2 * warm >= 0.6
    for seconds in (report.outcomes[0].step_time.before, report.outcomes[0].step_time.after):
        assert seconds is not None
        assert near(seconds, warm)


GRAPHED = """
    import json
    import torch
    from harness.pretend import accelerator
    from torch import nn

    accelerator.configure(kernel=KERNEL)
    accelerator.as_cuda()
    MUTANT
    device = torch.device("pretend", INDEX)
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(16, 16) for _ in range(LAYERS))).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(8, 16).to(device)

    def step():
        optimizer.zero_grad(set_to_none=False)
        net(x).pow(2).mean().backward()
        optimizer.step()

    for at in range(3):
        step()
    graph = torch.cuda.CUDAGraph()
    if GRAPH:
        graph.capture_begin()
        step()
        graph.capture_end()
    again = graph.replay if GRAPH else step
    for at in range(100):
        asked = accelerator.launches, accelerator.copies
        counts = [[ask(at) for at in range(2)] for ask in asked]
        print(json.dumps([accelerator.done_at(), *counts]), flush=True)
        again()
    """


@pytest.mark.parametrize("mode", ["time", "numbers", "nudged", "timeline"])
def test_a_replayed_graph_takes_steps(look: Look, mode: Mode) -> None:
    graph, eager = (look(mode, text=GRAPHED, GRAPH=at) for at in (True, False))
    assert (graph.trace.failure, eager.trace.failure) == (None, None)
    assert graph.trace.taken == eager.trace.taken == 16
    # The capture has run as well on this device, so that its losses are one step ahead.
    assert graph.trace.losses[3:-1] == pytest.approx(eager.trace.losses[4:], rel=1e-6)
    assert len(set(graph.trace.losses)) == (16 if graph.trace.losses else 0)
    assert graph.trace.loss_steps == eager.trace.loss_steps
    if mode in ("time", "timeline"):  # the others watch the capture, too
        assert near(fmean(graph.trace.durations[1:]), graph.truth)


def test_a_device_is_not_asked_while_a_graph_is_captured(look: Look) -> None:
    blind = """
    from torchlint.harness.child.device import Device
    Device.is_capturing = lambda self: False"""
    seen = look("time", text=GRAPHED, GRAPH=True, MUTANT=blind)
    assert seen.trace.failure is not None or not seen.trace.durations
