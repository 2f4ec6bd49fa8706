"""What TL316 says breaks a graph does so in the installed torch, under the name it states."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from once import once

import torchlint
from torchlint_rules.shared.breakingconstructs import CONSTRUCTS, NAMES

SAMPLES: Final = {
    "builtins.print": "print(x.shape)",
    "builtins.open": "open(os.devnull).close()",
    "logging.debug": "logging.debug('a')",
    "logging.info": "logging.info('a')",
    "logging.warning": "logging.warning('a')",
    "logging.getLogger": "logging.getLogger('b')",
    "logger": "logger.info('a')",
    "sys.stdout.write": "sys.stdout.write('')",
    "warnings.warn": "warnings.warn('a')",
    "time.time": "y = time.time()",
    "time.perf_counter": "y = time.perf_counter()",
    "time.monotonic": "y = time.monotonic()",
    "time.time_ns": "y = time.time_ns()",
    "time.perf_counter_ns": "y = time.perf_counter_ns()",
    "time.process_time": "y = time.process_time()",
    "datetime.datetime.now": "y = datetime.datetime.now()",
    "uuid.uuid4": "y = uuid.uuid4()",
    "time.sleep": "time.sleep(0)",
    "gc.collect": "gc.collect()",
    "torch.save": "torch.save(x, os.devnull)",
    "torch.manual_seed": "torch.manual_seed(0)",
    "torch.get_rng_state": "y = torch.get_rng_state()",
    "numpy.save": "np.save(os.devnull, x.numpy())",
    "numpy.savez": "np.savez(os.devnull, x.numpy())",
    "torch.cuda.max_memory_allocated": "y = torch.cuda.max_memory_allocated()",
    "torch.cuda.memory_reserved": "y = torch.cuda.memory_reserved()",
    "torch.cuda.memory_allocated": "y = torch.cuda.memory_allocated()",
    "os.path.exists": "y = os.path.exists('a')",
    "os.path.isfile": "y = os.path.isfile('a')",
    "os.path.isdir": "y = os.path.isdir('a')",
    "os.listdir": "y = os.listdir(os.curdir)",
    "os.makedirs": "os.makedirs(os.curdir, exist_ok=True)",
    "os.getpid": "y = os.getpid()",
    "random.random": "y = random.random()",
    "random.choice": "y = random.choice([1, 2])",
    "random.shuffle": "y = [1, 2]; random.shuffle(y)",
    "random.sample": "y = random.sample([1, 2], 1)",
    "random.choices": "y = random.choices([1, 2])",
    "random.gauss": "y = random.gauss(0, 1)",
    "random.normalvariate": "y = random.normalvariate(0, 1)",
    "random.betavariate": "y = random.betavariate(1, 1)",
    "random.seed": "random.seed(0)",
    "numpy.random.rand": "y = np.random.rand()",
    "numpy.random.random": "y = np.random.random()",
    "numpy.random.random_sample": "y = np.random.random_sample()",
    "numpy.random.normal": "y = np.random.normal(0, 1)",
    "numpy.random.uniform": "y = np.random.uniform(0, 1)",
    "numpy.random.randint": "y = np.random.randint(0, 3)",
    "numpy.random.choice": "y = np.random.choice(3)",
    "numpy.random.beta": "y = np.random.beta(1.0, 1.0)",
    "numpy.random.binomial": "y = np.random.binomial(1, 0.5)",
    "numpy.random.standard_normal": "y = np.random.standard_normal()",
    "numpy.random.exponential": "y = np.random.exponential()",
    "numpy.random.poisson": "y = np.random.poisson()",
    "numpy.random.permutation": "y = np.random.permutation(3)",
    "torch.nn.utils.rnn.pack_padded_sequence": (
        "y = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4] * 4))"
    ),
    "torch.autograd.grad": "y = torch.autograd.grad(w.sum(), [w])",
    "torch.allclose": "y = torch.allclose(x, x)",
    "torch.equal": "y = torch.equal(x, x)",
    "torch.nn.functional.one_hot": "y = torch.nn.functional.one_hot(i)",
    "copy.deepcopy": "y = copy.deepcopy(x)",
    "copy.copy": "y = copy.copy(x)",
    "backward": "w.sum().backward()",
    "torch.autograd.backward": "torch.autograd.backward(w.sum())",
    "torch.is_nonzero": "y = torch.is_nonzero(x.sum())",
    "builtins.any": "y = any([x.sum() > 0, False])",
    "builtins.all": "y = all(x[0] > 0)",
    "builtins.bool": "y = bool(x.sum() > 0)",
    "repeat_interleave": "y = x.repeat_interleave(i, 0)",
    "to_sparse": "y = x.to_sparse()",
    "recurrent": "y = rnn(x)",
    "branch": "x = x + 1 if x.sum() > 0 else x",
    "item": "y = x.sum().item()",
    "tolist": "y = x.tolist()",
    "builtins.float": "y = float(x.sum())",
    "builtins.int": "y = int(x.sum())",
    "math": "y = math.sqrt(x.sum())",
    "builtins.str": "y = str(x)",
    "builtins.repr": "y = repr(x)",
    "builtins.range": "y = list(range(i[0]))",
    "mask": "y = x[m]",
    "nonzero": "y = m.nonzero()",
    "argwhere": "y = torch.argwhere(m)",
    "masked_select": "y = x.masked_select(m)",
    "unique": "y = i.unique()",
    "unique_consecutive": "y = i.unique_consecutive()",
    "torch.bincount": "y = torch.bincount(i, minlength=9)",
    "torch.where": "y = torch.where(m)",
}

HANDLED: Final = {
    "an assert": "assert torch.isfinite(x).all(), 'text'",
    "an assert about a shape": "assert x.shape[0] == x.size(0) and x.ndim == 2",
    "a shape": "x = x * math.sqrt(x.shape[0]) if x.shape[0] > 2 else x",
    "an array": "y = np.sqrt(3.0), x.numpy()",
    "an array that is drawn": "y = np.random.rand(3), np.random.normal(0, 1, 3)",
    "an array of integers": "y = np.random.randint(0, 3, size=4)",
    "a formatted tensor": "y = f'{x.sum():.3f}', '{}'.format(x.sum())",
    "a masked number": "x[m] = 0.0; x[m] = x.sum(); x = x.masked_fill(m, 0)",
    "a choice": "y = torch.where(m, x, -x)",
    "classes of one_hot": "y = torch.nn.functional.one_hot(i, 9)",
    "the larger of two tensors": "y = max(x.sum(), x.mean())",
    "a uniform number": "y = random.uniform(0, 1), random.randint(0, 3)",
    "code kept out": "y = 0 if torch.compiler.is_compiling() else print(x)",
    "a branch not taken": "y = print(x) if x.shape[0] > 9 else 0",
    "rows": "for n, row in enumerate(x):\n    y = row * n",
    "a list of rows": "y = torch.stack([row for row in x])",
    "a generator": "y = sum(k for k in (1, 2))",
    "a known length": "y = x.repeat_interleave(i, 0, output_size=10), x.repeat_interleave(2, 0)",
    "a new tensor": "y = torch.tensor([1.0, 2.0]), torch.tensor([x[0, 0], x[0, 1]])",
    "plain data": "y = copy.deepcopy([1, 2]), any([True, False])",
    "other memory": "y = x.cpu(), x.data, x.type(torch.LongTensor)",
    "autocast": "with torch.autocast('cpu', torch.bfloat16):\n    y = x @ x",
    "no gradients": "with torch.no_grad():\n    y = x * 2",
    "a distribution": "y = torch.distributions.Normal(x, 1.0).rsample()",
    "a try": "try:\n    y = x.sin()\nexcept ValueError:\n    y = x.cos()",
    "keywords": "y = torch.add(**{'input': x, 'other': x})",
    "a partial function": "y = functools.partial(torch.add, x)(x)",
    "the environment": "y = os.environ.get('A'), torch.cuda.is_available()",
    "a hook of a tensor": "y = w * 2\ny.register_hook(lambda g: g)",
    "a list outside": "KEPT.append(1)",
}
"""What torch puts into its graph, so that nothing must be said."""

GIVEN_UP: Final = {
    "in a loop": "for _ in range(2):\n    x = x.sin()\n    print(end='')",
    "in a try": "try:\n    x = x.sin()\n    print(end='')\nexcept ValueError:\n    x = x.cos()",
    "a recurrent layer": "y = rnn(x)",
    "in a function that a loop runs": "for _ in range(2):\n    x = shown(x)",
}
"""What keeps torch from compiling any of a function; `shown` alone makes two graphs."""

RUN_INSIDE: Final = {
    "a hook of a layer": "x = hooked(x)",
    "the forward of an autograd function": "x = Shown.apply(x)",
    "the backward of an autograd function": "x = x + Graded.apply(w).sum()",
}
"""Code that prints inside what compiled code calls: it breaks the graph of the caller."""

SCRIPT: Final = """
import copy, datetime, functools, gc, json, logging, math, os, random, sys, time, uuid, warnings
import numpy as np
import torch
logger, rnn = logging.getLogger("a"), torch.nn.LSTM(4, 4)
logger.setLevel(logging.ERROR)
KEPT = []
warnings.simplefilter("ignore")
def shown(x):
    x = x.sin()
    print(end="")
    return x.cos()
class Shown(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print(end="")
        return x.sin()
    @staticmethod
    def backward(ctx, grad):
        return grad
class Graded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sin()
    @staticmethod
    def backward(ctx, grad):
        print(end="")
        return grad
hooked = torch.nn.Linear(4, 4)
hooked.register_forward_hook(lambda *_: print(end=""))
for key, code in json.load(open(sys.argv[1])).items():
    body = "x = x + 1\\n" + code + "\\nreturn x * 2"
    space = dict(globals())
    exec("def f(x, m, i, w):\\n" + "\\n".join("    " + line for line in body.split("\\n")), space)
    made = []
    def backend(graph, inputs):
        made.append(graph)
        return graph.forward
    torch.compiler.reset()
    x = torch.ones(4, 4)
    print("@@", key, file=sys.stderr, flush=True)
    torch.compile(space["f"], backend=backend)(
        x, x > 0, torch.arange(1, 5), torch.ones(4, requires_grad=True)
    )
    print("@=", len(made), file=sys.stderr, flush=True)
"""


class Ran(NamedTuple):
    """How many graphs a function became, and what torch said of it."""

    graphs: int
    log: str


def _compiled(folder: Path) -> str:
    """Compile every sample in one process, and return where it says that graphs break."""
    every = {**SAMPLES, **HANDLED, **GIVEN_UP, **RUN_INSIDE}
    samples, script = folder / "samples.json", folder / "compile.py"
    samples.write_text(json.dumps(every), encoding="utf-8")
    script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(samples)],
        env={**os.environ, "TORCH_LOGS": "graph_breaks", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    found = {}
    for part in once(tmp_path_factory, "graphs", _compiled).split("@@ ")[1:]:
        key, _, rest = part.partition("\n")
        log, _, graphs = rest.rpartition("@= ")
        found[key] = Ran(int(graphs.split()[0]), log)
    return found


def test_every_construct_has_a_sample() -> None:
    assert set(SAMPLES) == set(CONSTRUCTS)
    assert {construct.name for construct in CONSTRUCTS.values()} == set(NAMES)


@pytest.mark.parametrize("key", CONSTRUCTS)
def test_a_construct_breaks_the_graph_under_this_name(key: str, ran: dict[str, Ran]) -> None:
    number = CONSTRUCTS[key].name
    assert ran[key].graphs == (0 if key == "recurrent" else 2)
    assert f"/{number.lower()}.html" in ran[key].log
    assert NAMES[number] in ran[key].log


@pytest.mark.parametrize("key", HANDLED)
def test_what_is_not_reported_stays_in_one_graph(key: str, ran: dict[str, Ran]) -> None:
    assert ran[key] == Ran(1, "")


@pytest.mark.parametrize("key", GIVEN_UP)
def test_a_break_in_a_loop_or_a_try_costs_the_whole_function(key: str, ran: dict[str, Ran]) -> None:
    own = 2 if "shown" in GIVEN_UP[key] else 0
    assert ran[key].graphs == own
    assert "falling back to eager" in ran[key].log


COMPILED: Final = """
import copy, datetime, functools, gc, json, logging, math, os, random, sys, time, uuid, warnings
import numpy as np
import torch
from torch import Tensor
logger, rnn = logging.getLogger("a"), torch.nn.LSTM(4, 4)
KEPT = []
@torch.compile
def run(x: Tensor, i: Tensor, w: Tensor):
    m = x > 0
    x = x + 1
{body}
    return x * 2
"""


def _said(code: str) -> list[str]:
    found = torchlint.check(COMPILED.format(body=textwrap.indent(code, "    ")), select=["TL316"])
    return [each.message for each in found]


@pytest.mark.parametrize("key", SAMPLES)
def test_the_rule_names_the_break(key: str) -> None:
    (message,) = _said(SAMPLES[key])
    assert CONSTRUCTS[key].name in message


def test_only_reads_of_tensors_wait() -> None:
    assert "waits" not in _said(SAMPLES["numpy.random.rand"])[0]
    assert "waits" in _said("y = x.cuda().sum().item()")[0]


@pytest.mark.parametrize("key", HANDLED)
def test_the_rule_is_silent_where_torch_is(key: str) -> None:
    assert _said(HANDLED[key]) == []


@pytest.mark.parametrize("key", RUN_INSIDE)
def test_a_hook_and_an_autograd_function_run_inside(key: str, ran: dict[str, Ran]) -> None:
    assert ran[key].graphs > 1
    assert f"/{CONSTRUCTS['builtins.print'].name.lower()}.html" in ran[key].log
