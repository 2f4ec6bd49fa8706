"""One run of a real script in its own process: what it sees, and what it leaves alone."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from functools import partial
from pathlib import Path

import pytest
from harness.scripts import PLAIN, run, run_by, write

from torchlint.harness.child.overlay import after_import


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".torchlint-run" not in path.parts
    }


def test_a_script_at_module_level_is_run_as_main_and_stopped_when_enough_was_seen(
    tmp_path: Path,
) -> None:
    trace = run(write(tmp_path, PLAIN))
    assert trace.failure is None
    assert (trace.ending, trace.taken) == ("full", 8)
    assert len(trace.losses) == 8
    assert trace.loss_steps == tuple(range(8))
    assert trace.device == "cpu"
    assert trace.modules == (str(tmp_path / "train.py"),)


def test_a_script_sees_its_own_arguments_path_and_name(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import sys, os, __main__
        assert sys.argv == [__file__, "--size", "4"], sys.argv
        assert __name__ == "__main__" and __main__.__dict__ is globals()
        assert os.path.samefile(sys.path[0], os.path.dirname(__file__)), sys.path
        assert sys.stdin.read() == ""
        raise SystemExit("all as it should be")
        """,
    )
    trace = run_by(None, script, args=("--size", "4"))
    assert trace.failure is not None
    assert trace.failure.message == "it exited: all as it should be"


def test_fixed_text_is_laid_over_the_script_and_over_a_module_of_the_project(
    tmp_path: Path,
) -> None:
    write(tmp_path, "RATE = 0.1\n", "settings.py")
    script = write(tmp_path, PLAIN.replace("import torch\n", "import torch, settings\n", 1))
    before = files(tmp_path)
    plain = run(script, folder=tmp_path / ".torchlint-run/a")
    module = run(
        script,
        folder=tmp_path / ".torchlint-run/b",
        texts={str(tmp_path / "settings.py"): "raise ValueError('fixed module')\n"},
    )
    main = run(
        script,
        folder=tmp_path / ".torchlint-run/c",
        texts={str(script): "\n\n\nraise ValueError('fixed script')\n"},
    )
    assert plain.modules == (str(script), str(tmp_path / "settings.py"))
    assert module.failure is not None
    assert module.failure.message == "ValueError: fixed module"
    assert module.failure.file == str(tmp_path / "settings.py")
    assert main.failure is not None
    assert (main.failure.file, main.failure.line) == (str(script), 4)
    assert files(tmp_path) == before


def test_tracebacks_and_inspect_show_the_fixed_text_under_the_users_path(tmp_path: Path) -> None:
    script = write(tmp_path, "x = 1\n")
    text = """
        import inspect, traceback
        def fixed_function():
            return 1 / 0
        try:
            fixed_function()
        except ZeroDivisionError:
            shown = traceback.format_exc()
        assert f'File "{__file__}", line 4, in fixed_function' in shown, shown
        assert "return 1 / 0" in shown, shown
        assert "return 1 / 0" in inspect.getsource(fixed_function)
        raise SystemExit("seen")
        """
    trace = run(script, texts={str(script): text})
    assert trace.failure is not None
    assert trace.failure.message == "it exited: seen"


WORKERS = """
    import sys
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    import part

    SCALE = 1.0

    class Numbers(Dataset):
        def __len__(self):
            return 64
        def __getitem__(self, index):
            return torch.full((4,), SCALE * part.SCALE * index / 64)

    def main():
        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        method = sys.argv[1]
        loader = DataLoader(Numbers(), 4, num_workers=2, multiprocessing_context=method)
        for batch in loader:
            optimizer.zero_grad()
            net(batch).pow(2).mean().backward()
            optimizer.step()

    if __name__ == "__main__":
        torch.manual_seed(0)
        main()
    """


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_get_the_fixed_text_of_the_script_and_of_its_modules(
    tmp_path: Path, method: str
) -> None:
    part = write(tmp_path, "SCALE = 1.0\n", "part.py")
    script = write(tmp_path, WORKERS)
    texts = {
        str(script): WORKERS.replace("SCALE = 1.0", "SCALE = 3.0"),
        str(part): "SCALE = 2.0\n",
    }
    fixed = run(script, args=(method,), texts=texts, folder=tmp_path / ".torchlint-run/a")
    write(tmp_path, WORKERS.replace("SCALE = 1.0", "SCALE = 6.0"))
    meant = run(script, args=(method,), folder=tmp_path / ".torchlint-run/b")
    assert fixed.failure is None
    assert fixed.ending == "full"
    assert fixed.losses == meant.losses
    assert len(fixed.losses) == 8


def test_what_a_script_writes_is_diverted_and_read_back(tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    project = tmp_path / "project"
    project.mkdir()
    write(project, "kept\n", "log.txt")
    script = write(
        project,
        PLAIN.replace(
            "optimizer.step()",
            """optimizer.step()
        import json, os, pathlib, shutil, numpy
        os.makedirs("out/deep", exist_ok=True)
        torch.save(net.state_dict(), "out/deep/last.pt")
        torch.save(net.state_dict(), AWAY)
        assert set(torch.load(AWAY)) == {"weight", "bias"}
        numpy.save("out/array.npy", numpy.zeros(3))
        assert numpy.load("out/array.npy").shape == (3,)
        with open("log.txt", "a") as log:
            log.write("more")
        assert open("log.txt").read().startswith("kept")
        pathlib.Path("state.json").write_text(json.dumps({"a": 1}))
        os.replace("state.json", "final.json")
        assert os.path.exists("final.json") and not os.path.exists("state.json")
        assert sorted(os.listdir("out")) == ["array.npy", "deep"]
        shutil.rmtree("out")
        assert not os.path.exists("out")
        os.remove("final.json")
        pathlib.Path("train.py").touch()""",
        ).replace("AWAY", repr(str(away / "best.pt"))),
    )
    before = files(tmp_path)
    times = {path: path.stat().st_mtime_ns for path in project.iterdir()}
    here = Path.cwd()
    os.chdir(project)
    try:
        trace = run_by(None, script, folder=tmp_path / ".torchlint-run")
    finally:
        os.chdir(here)
    assert trace.failure is None
    assert trace.ending == "full"
    assert str(away / "best.pt") in trace.diverted
    assert files(tmp_path) == before
    assert {path: path.stat().st_mtime_ns for path in project.iterdir()} == times


def test_loggers_write_into_the_shadow_or_not_at_all(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is no dependency of torchlint")
    project = tmp_path / "project"
    project.mkdir()
    write(
        project,
        """
        def init(mode=None, project=None):
            if mode != "disabled":
                raise RuntimeError(f"wandb was started, {mode}")
        """,
        "wandb.py",
    )
    away = tmp_path / "away"
    script = write(
        project,
        PLAIN.replace(
            "optimizer.step()",
            f"""optimizer.step()
        if step == 0:
            import wandb
            from torch.utils.tensorboard import SummaryWriter
            wandb.init(project="mine", mode="online")
            events = SummaryWriter({str(away)!r})
        events.add_scalar("loss", loss.item(), step)
        events.flush()
        torch.jit.save(torch.jit.script(net), {str(project / "net.pt")!r})""",
        ),
    )
    before = files(tmp_path)
    trace = run(script, folder=tmp_path / ".torchlint-run")
    assert trace.failure is None
    assert trace.ending == "full"
    assert str(project / "net.pt") in trace.diverted
    assert [path for path in trace.diverted if path.startswith(f"{away}/events")]
    assert files(tmp_path) == before
    assert not away.exists()


@pytest.mark.parametrize(
    ("text", "kind", "message", "line"),
    [
        ("import torch\nx = torch.zeros(2) @ torch.zeros(3)\n", "crash", "RuntimeError: ", 2),
        ("raise ValueError('so ' * 999)\n", "crash", f"ValueError: {'so ' * 50} … ", 1),
        ("def f(:\n", "crash", "SyntaxError: ", 1),
        ("import nowhere\n", "crash", f"'nowhere' (searched with {sys.executable}, ", 1),
        ("import torch\nname = input('data: ')\n", "input", "EOFError: ", 2),
        ("raise MemoryError\n", "memory", "MemoryError", 1),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "killed", "SIGSEGV", 0),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "memory", "killed it", 0),
        ("import time\ntime.sleep(60)\n", "timeout", "2 s", 0),
        (
            "from argparse import *\np = ArgumentParser()\np.add_argument('x')\np.parse_args()\n",
            "exit",
            "the following arguments are required: x",
            0,
        ),
    ],
)
def test_a_script_that_fails_is_told_in_one_line(
    tmp_path: Path, text: str, kind: str, message: str, line: int
) -> None:
    trace = run(write(tmp_path, text), timeout=2 if kind == "timeout" else 120)
    assert trace.ending in ("failed", "ended")
    assert trace.failure is not None
    assert (trace.failure.kind, trace.failure.line) == (kind, line)
    assert message in trace.failure.message
    assert "\n" not in trace.failure.message


@pytest.mark.parametrize("package", ["parts", "src/parts"])
def test_a_package_of_the_project_that_is_not_found_is_located(
    tmp_path: Path, package: str
) -> None:
    script, folder = tmp_path / "tools" / "train.py", tmp_path / package
    script.parent.mkdir()
    folder.mkdir(parents=True)
    (folder / "net.py").touch()
    script.write_text("from parts import net\n", encoding="utf-8")
    trace = run(script, root=tmp_path)
    assert trace.failure is not None
    start = f"PYTHONPATH={os.path.relpath(folder.parent)}"
    assert f"(install this project, or start with `{start}`)" in trace.failure.message


def test_a_script_that_trains_in_a_process_of_its_own_is_recognised(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "pass"])
        """,
    )
    trace = run(script)
    assert (trace.ending, trace.taken, trace.processes) == ("ended", 0, True)


def test_a_bare_except_does_not_keep_a_run_from_ending(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        PLAIN.replace(
            "        optimizer.step()", "        try: optimizer.step()\n        except: pass"
        ),
    )
    trace = run(script)
    assert (trace.ending, trace.taken) == ("full", 8)


def test_the_optimizer_that_steps_least_often_counts(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch
        critic, generator = torch.nn.Linear(2, 1), torch.nn.Linear(2, 2)
        first = torch.optim.Adam(critic.parameters())
        second = torch.optim.Adam(generator.parameters())
        while True:
            for _ in range(5):
                first.zero_grad()
                critic(generator(torch.randn(4, 2)).detach()).mean().backward()
                first.step()
            second.zero_grad()
            critic(generator(torch.randn(4, 2))).mean().backward()
            second.step()
        """,
    )
    trace = run(script)
    assert (trace.ending, trace.taken, trace.leader) == ("full", 8, 1)
    assert len(trace.losses) == 48
    assert trace.parameters is None


def test_steps_are_timed_and_waiting_for_the_loader_is_told(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import time
        import torch
        class Slow(torch.utils.data.Dataset):
            def __len__(self): return 40
            def __getitem__(self, index):
                time.sleep(0.01)
                return torch.ones(2)
        net = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for batch in torch.utils.data.DataLoader(Slow(), batch_size=2):
            net(batch).mean().backward()
            optimizer.step()
        """,
    )
    trace = run(script, "time")
    assert len(trace.durations) == 6
    assert all(time > 0.02 for time in trace.durations)
    assert trace.waited is not None
    assert 0.5 * sum(trace.durations) < trace.waited <= sum(trace.durations)
    assert trace.losses == ()


def test_a_wait_in_a_library_is_told_at_the_users_line(tmp_path: Path) -> None:
    script = write(tmp_path, PLAIN.replace("optimizer.step()", "optimizer.step(); MEAN"))
    text = script.read_text().replace("MEAN", "statistics.fmean([loss])")
    script.write_text(f"import statistics\n{text}")
    trace = run(script, "syncs")
    (site,) = trace.syncs
    assert site.file == str(script)
    assert "fmean" in script.read_text().splitlines()[site.line - 1]


def test_syncs_are_counted_by_line_without_those_of_optimizer_and_loader(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        net = torch.nn.Linear(2, 1)
        optimizer = torch.optim.Adam(net.parameters(), foreach=False)
        class Samples(TensorDataset):
            def __getitem__(self, at):
                (row,) = super().__getitem__(at)
                return (row * row[0].item(),)
        total = 0.0
        data = Samples(torch.randn(400, 2))
        for step, (batch,) in enumerate(DataLoader(data, batch_size=4, shuffle=True)):
            out = net(batch)
            loss = out.pow(2).mean()
            loss.backward()
            optimizer.step()
            total += loss.item() + float(loss)
            if loss > 100: break
            values = out.detach().cpu().numpy()
            chosen = out[out > 0]
            rows = out.tolist()
            print(loss)
        """,
    )
    trace = run(script, "syncs")
    per_step = {
        (site.line, site.call): site.count / trace.sync_steps
        for site in trace.syncs
        if site.file == str(script)
    }
    assert per_step == {
        (16, ".item()"): 2.0,
        (17, ".item()"): 1.0,
        (18, ".cpu()"): 1.0,
        (19, "indexing with a mask"): 1.0,
        (20, ".tolist()"): 1.0,
        (21, "print"): 1.0,
    }
    assert {site.file for site in trace.syncs} == {str(script)}


def test_on_a_cpu_only_those_count_that_would_wait_for_another_device(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch
        device = torch.device("cpu")
        net = torch.nn.Linear(2, 3).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        data = torch.randn(400, 2)
        total = torch.zeros((), device=device)
        for step in range(100):
            rows = torch.randint(400, (4,))
            x = torch.stack([data[int(row)] for row in rows])
            print(rows, x.numpy().shape)
            y = torch.randint(3, (4,))
            x, y = x.to(device), y.to(device)
            out = net(x)
            loss = torch.nn.functional.cross_entropy(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += 1
            with torch.no_grad():
                guess = net(x).argmax(dim=1)
            hits = (guess == y).sum().item()
            firsts = (y == 0).sum().item()
            print(float(total))
            steep = net.weight.grad.norm().item()
        """,
    )
    trace = run(script, "syncs")
    per_step = {site.line: site.count / trace.sync_steps for site in trace.syncs}
    assert per_step == {21: 1.0, 22: 1.0, 23: 1.0, 24: 1.0}


def test_warnings_of_the_script_are_noted(tmp_path: Path) -> None:
    script = write(tmp_path, "import warnings\nwarnings.warn('old  ways')\n" + _flat(PLAIN))
    assert "UserWarning: old ways" in run(script, "time").warnings


def test_seeds_make_an_unseeded_script_repeatable(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "import random, numpy\n"
        + _flat(PLAIN)
        .replace("torch.manual_seed(1)\n", "")
        .replace("loss =", "loss = random.random() * numpy.random.rand() *"),
    )
    first = run(script, folder=tmp_path / ".torchlint-run/a")
    second = run(script, folder=tmp_path / ".torchlint-run/b")
    assert first.losses == second.losses
    assert len(first.losses) == 8


def test_workers_end_with_the_run(tmp_path: Path) -> None:
    write(tmp_path, "SCALE = 1.0\n", "part.py")
    script = write(
        tmp_path,
        WORKERS.replace("return 64", "return 1 << 20").replace(
            "return torch.full",
            'open(f"worker-{__import__(\'os\').getpid()}", "w").close(); return torch.full',
        ),
    )
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        trace = run_by(None, script, args=("fork",))
    finally:
        os.chdir(here)
    pids = [int(path.rpartition("-")[2]) for path in trace.diverted]
    assert len(pids) == 2
    assert not [pid for pid in pids if _alive(pid)]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def _flat(text: str) -> str:
    from textwrap import dedent

    return dedent(text).lstrip("\n")


def test_what_a_checkpoint_sends_backward_by_itself_is_no_loss(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch
        from torch.utils.checkpoint import checkpoint

        net = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        while True:
            optimizer.zero_grad()
            hidden = checkpoint(net, torch.ones(2, 4, requires_grad=True), use_reentrant=True)
            (hidden.sum() - 1).pow(2).backward()
            optimizer.step()
        """,
    )
    trace = run(script, folder=tmp_path / "away")
    assert trace.loss_steps == tuple(range(8))


def test_a_closure_that_an_optimizer_calls_again_and_again_gives_one_loss_a_step(
    tmp_path: Path,
) -> None:
    text = PLAIN.replace("optim.SGD(", "optim.LBFGS(").replace("        loss.backward()\n", "")
    step = """
        def closure():
            global calls
            calls += 1
            optimizer.zero_grad()
            loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
            loss.backward()
            return loss
        optimizer.step(closure)
        assert calls > step + 1
    """
    text = text.replace("        optimizer.step()\n", step).replace(
        "    net =", "    calls = 0\n    net ="
    )
    trace = run(write(tmp_path, text))
    assert trace.failure is None
    assert trace.loss_steps == tuple(range(8))


@pytest.mark.parametrize("what", ["step", "optimizer.step"])
def test_a_compiled_step_is_measured_as_it_is(tmp_path: Path, what: str) -> None:
    script = write(
        tmp_path,
        f"""
        import torch

        net = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            net(x).pow(2).mean().backward()
            optimizer.step()

        {what} = torch.compile({what}, backend="eager")
        for x in torch.randn(100, 8, 4):
            step(x)
        """,
    )
    trace = run(script)
    assert (trace.failure, trace.ending, len(trace.losses)) == (None, "full", 8)


def test_every_callback_comes_once_after_an_import_though_others_looked_for_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "done = True\n", "looked_for.py")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    called: list[str] = []
    for name in ("first", "second"):
        after_import("looked_for", partial(called.append, name))
    try:
        assert importlib.util.find_spec("looked_for") is not None
        assert called == []
        module = importlib.import_module("looked_for")
        assert importlib.reload(module).done
    finally:
        sys.modules.pop("looked_for", None)
    assert called == ["first", "second"]
    assert sys.meta_path == finders
