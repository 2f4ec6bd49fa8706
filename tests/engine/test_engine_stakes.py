"""What is at stake in a finding, by what the code is for."""

from __future__ import annotations

import pytest
from notebook_samples import code, notebook

from torchlint import check

LOADER = """\
import torch
from torch.utils.data import DataLoader
from mine import Images, net
loader = DataLoader(Images(), batch_size=8)
"""
APPLIED = "for x in loader:\n    print(net(x.cuda()))\n"
WITHOUT_GRADIENTS = """\
with torch.no_grad():
    for x in loader:
        print(net(x.cuda()))
"""
OPTIMIZER = "opt = torch.optim.SGD(net.parameters(), 0.1)\n"
TRAINED = f"""\
{OPTIMIZER}for x in loader:
    opt.zero_grad()
    net(x.cuda()).mean().backward()
    opt.step()
"""
EVALUATION = """\
from torch import nn
net = nn.Sequential(nn.Linear(8, 8), nn.Dropout())
with torch.no_grad():
    for x, y in val_loader:
        correct += (net(x).argmax(1) == y).sum()
"""
UNUSED = """\
def measure(model: torch.nn.Module, val_loader):
    correct = 0
    for x, y in val_loader:
        correct += (model(x).argmax(1) == y).sum().item()
    return correct
"""


def _impacts(text: str, code: str) -> set[str]:
    return {each.impact for each in check(text, select=("ALL",)) if each.code == code}


@pytest.mark.parametrize(
    ("before", "after", "impacts"),
    [
        ("report(title=1)\n", "", set()),
        ("if odd:\n    raise ValueError\nreport(title=1)\n", "", set()),
        ("", "report(title=1)\n", {"high"}),
        ("", "report()\n", {"high"}),
        ("next(iter(loader))\n", "", {"high"}),
        ("drawn = iter(loader)\ndrawn.next()\n", "", set()),
    ],
)
def test_what_raises_before_the_training_leaves_nothing_to_make_faster(
    before: str, after: str, impacts: set[str]
) -> None:
    defined = "def report():\n    print(1)\n"
    assert _impacts(LOADER + defined + before + TRAINED + after, "TL101") == impacts


@pytest.mark.parametrize(
    ("rest", "impact"),
    [
        (APPLIED, "low"),
        (WITHOUT_GRADIENTS, "low"),
        (TRAINED, "high"),
        (
            f"def run():\n    {OPTIMIZER}    for x in loader:\n        net(x.cuda())\nrun()\n",
            "low",
        ),
    ],
)
def test_a_script_that_only_applies_a_network_runs_once(rest: str, impact: str) -> None:
    assert _impacts(LOADER + rest, "TL101") == {impact}


@pytest.mark.parametrize(
    ("rest", "impacts"),
    [
        ("", set[str]()),
        ("def other(x):\n    measure = x\n    return measure\n", set[str]()),
        ("measure(net, val_loader)\n", {"medium"}),
        ("exit()\nmeasure(net, val_loader)\n", set[str]()),
        ("if done:\n    exit()\nmeasure(net, val_loader)\n", {"medium"}),
    ],
)
def test_nothing_is_told_of_a_function_that_nothing_uses(rest: str, impacts: set[str]) -> None:
    assert _impacts(LOADER + UNUSED + TRAINED + rest, "TL601") == impacts


def test_what_nothing_uses_is_kept_up_with_torch() -> None:
    text = LOADER + TRAINED + "def start(w):\n    torch.nn.init.xavier_normal(w)\n"
    assert _impacts(text, "TL806") == {"low"}


@pytest.mark.parametrize(
    ("before", "impact"), [("", "medium"), ("for epoch in range(9):\n    ", "high")]
)
def test_an_evaluation_after_the_training_is_medium(before: str, impact: str) -> None:
    text = LOADER + UNUSED + TRAINED + before + "measure(net, val_loader)\n"
    assert _impacts(text, "TL601") == {impact}


BY_MODE = """\
import sys
def train():
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for x in DataLoader(Images(), batch_size=8):
        opt.zero_grad()
        net(x.cuda()).mean().backward()
        opt.step()
def evaluate():
    val_loader = DataLoader(Images("val"), batch_size=8)
    {}
    return score(net.eval(), val_loader)
if sys.argv[1] == "train":
    train()
if sys.argv[1] == "evaluate":
    evaluate()
"""


@pytest.mark.parametrize(
    ("line", "impacts"),
    [("net.load_state_dict(torch.load(PATH))", {"high", "medium"}), ("trainer.fit(net)", {"high"})],
)
def test_a_function_that_only_evaluates_beside_a_training_is_medium(
    line: str, impacts: set[str]
) -> None:
    assert _impacts(LOADER + BY_MODE.format(line), "TL101") == impacts


TRAINER = """\
class Trainer:
    def evaluate(self, loader):
        for x in loader:
            print(net(x.cuda()))
def run():
    trainer, found = Trainer(), {{}}
    {}
    found.update(done=True)
if __name__ == "__main__":
    run()
"""


@pytest.mark.parametrize(
    ("line", "impact"), [("trainer.evaluate(loader)", "low"), ("trainer.run(loader)", "high")]
)
def test_a_trainer_that_is_not_started_trains_nothing(line: str, impact: str) -> None:
    assert _impacts(LOADER + TRAINER.format(line), "TL101") == {impact}


def test_results_of_a_script_that_runs_once_are_at_stake() -> None:
    assert _impacts("import torch\n" + EVALUATION, "TL602") == {"medium"}


EXTRACTION = """\
import torch
from torch.utils.data import DataLoader
@torch.no_grad()
def extract(encoder, dataset):
    found = []
    loader = DataLoader(dataset, batch_size=8)
    for x in loader:
        found.append(encoder.encode(x.cuda()){})
    return found
"""


@pytest.mark.parametrize(
    ("copy", "of_workers", "of_memory"),
    [(".cpu().numpy()", {"medium"}, set[str]()), ("", {"high"}, {"medium"})],
)
def test_a_pass_that_copies_outputs_out_matters_less(
    copy: str, of_workers: set[str], of_memory: set[str]
) -> None:
    text = EXTRACTION.format(copy)
    assert _impacts(text, "TL101") == of_workers
    assert _impacts(text, "TL102") == of_memory


LOADED = "net.load_state_dict(torch.load('net.pt'))\n"
FIGURE = """\
import matplotlib.pyplot as plt
def show(net, loader):
    seen = []
    with torch.no_grad():
        for x in loader:
            seen.extend(net(x.cuda()).argmax(1).cpu().numpy())
    plt.plot(seen)
"""
SALIENCY = """\
for x in loader:
    x.requires_grad_()
    net(x.cuda()).mean().backward()
    seen.append(x.grad.cpu().numpy())
"""


def test_costs_of_a_script_that_applies_saved_weights_are_no_findings() -> None:
    assert _impacts(LOADER + APPLIED, "TL102") == {"low"}
    assert _impacts(LOADER + LOADED + APPLIED, "TL102") == set()
    assert _impacts(LOADER + LOADED + APPLIED, "TL101") == set()
    assert _impacts(LOADER + LOADED + TRAINED, "TL102") == {"medium"}


@pytest.mark.parametrize(
    ("call", "impact"),
    [("show(net, loader)\n", "low"), ("for _ in range(9):\n    show(net, loader)\n", "high")],
)
def test_a_figure_that_is_drawn_once_is_low(call: str, impact: str) -> None:
    assert _impacts(LOADER + FIGURE + TRAINED + call, "TL202") == {impact}


SCORED = """\
@torch.no_grad()
def score(net, loader):
    seen = []
    for x in loader:
        outputs = {outputs}
        {line}
    return seen
"""


@pytest.mark.parametrize(
    ("outputs", "line", "impact"),
    [
        ("net(x.cuda())", "seen.append(outputs.cpu())", "low"),
        ("net(x.cuda())[:, :3]", "seen.append(torch.sigmoid(outputs).cpu().numpy())", "low"),
        ("net(x.cuda()).cpu().numpy()", "seen.append(outputs)", "low"),
        ("net(x.cuda()).cpu().numpy()", "seen.append(np.argmax(outputs, 1))", "medium"),
        ("net(x.cuda())", "seen.append(outputs.argmax(1).cpu())", "medium"),
        ("net(x.cuda())", "seen.append(outputs.loss.cpu())", "medium"),
        ("net(x.cuda())", "seen.append(outputs.logits.cpu())", "low"),
        ("net(x.cuda()).mean()", "seen.append(outputs.item())", "medium"),
    ],
)
def test_whole_outputs_may_wait_on_the_host(outputs: str, line: str, impact: str) -> None:
    scored = "import numpy as np\n" + SCORED.format(outputs=outputs, line=line)
    assert _impacts(LOADER + scored + TRAINED + "score(net, loader)\n", "TL202") == {impact}


CURVE = """\
import matplotlib.pyplot as plt
def train(net, loader):
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for x in loader:
        opt.zero_grad()
        net(x.cuda()).mean().backward()
        opt.step()
def main():
    loader = DataLoader(Images(), batch_size=8)
    train(net, loader)
    plt.plot([1, 2])
main()
"""


def test_a_training_that_ends_with_its_curve_is_no_figure() -> None:
    assert _impacts(LOADER + CURVE, "TL101") == {"high"}


IGNITE = """\
def build(net):
    opt = torch.optim.SGD(net.parameters(), 0.1)
    def step(engine, x):
        opt.zero_grad()
        net(x.cuda()).mean().backward()
        opt.step()
    return Engine(step)
def main():
    loader = DataLoader(Images(), batch_size=8)
    trainer = build(net)
    trainer.run(loader, max_epochs=3)
    plt.plot([1, 2])
main()
"""
HUGGINGFACE = """\
def main():
    args = TrainingArguments("out", logging_steps=1, num_train_epochs=3)
    trainer = Trainer(net, args, train_dataset=Images())
    LINE
    plt.plot(trainer.state.log_history)
main()
"""
DRAWS = "import matplotlib.pyplot as plt\n"


def test_a_trainer_whose_curve_is_drawn_is_no_figure() -> None:
    ignite = f"{LOADER}{DRAWS}from ignite.engine import Engine\n{IGNITE}"
    assert _impacts(ignite, "TL101") == {"high"}
    head = f"{DRAWS}from transformers import Trainer, TrainingArguments\nfrom mine import *\n"
    started = head + HUGGINGFACE.replace("LINE", "trainer.train()")
    assert _impacts(started, "TL207") == {"medium"}
    evaluated = head + HUGGINGFACE.replace("LINE", "trainer.evaluate()")
    assert _impacts(evaluated, "TL207") <= {"low"}


def test_a_backward_pass_without_a_step_is_no_training() -> None:
    assert _impacts(LOADER + "seen = []\n" + SALIENCY, "TL101") == {"low"}
    update = "    with torch.no_grad():\n        w -= 0.1 * w.grad\n"
    assert _impacts(LOADER + "seen = []\n" + SALIENCY + update, "TL101") == {"high"}


def test_a_mode_that_is_set_back_is_no_training() -> None:
    text = LOADER + LOADED + "net.eval()\n" + APPLIED + "net.train()\n"
    assert _impacts(text, "TL102") == set()


ROLLOUTS = """\
losses = []
opt = torch.optim.SGD(net.parameters(), 0.1)
for x in loader:
    opt.zero_grad()
    answers = {answers}
    loss = net(answers.cuda()).mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())
"""
SAMPLES = """\
@torch.no_grad()
def sample(net: torch.nn.Module, x):
    for step in range(256):
        x = net(x)
    return x
"""


@pytest.mark.parametrize(
    ("answers", "impacts"),
    [
        ("net.generate(x, max_new_tokens=256)", set[str]()),
        ("sample(net, x)", set[str]()),
        ("x.generate()", {"high"}),
        ("net(x)", {"high"}),
    ],
)
def test_waits_beside_generation_are_no_findings(answers: str, impacts: set[str]) -> None:
    text = LOADER + SAMPLES + ROLLOUTS.format(answers=answers)
    assert _impacts(text, "TL201") == impacts


STEP_OF_ROLLOUTS = """\
def step(net: torch.nn.Module, opt, answers):
    opt.zero_grad()
    loss = net(answers).mean()
    loss.backward()
    opt.step()
    print(loss.item())
opt = torch.optim.SGD(net.parameters(), 0.1)
for x in loader:
    step(net, opt, {answers}.cuda())
"""


@pytest.mark.parametrize(
    ("answers", "impacts"), [("sample(net, x)", set[str]()), ("net(x)", {"medium"})]
)
def test_so_are_those_of_a_function_that_is_called_beside_it(
    answers: str, impacts: set[str]
) -> None:
    text = LOADER + SAMPLES + STEP_OF_ROLLOUTS.format(answers=answers)
    assert _impacts(text, "TL207") == impacts


SHARED = """\
total = 0
opt = torch.optim.SGD(net.parameters(), 0.1)
for i, x in enumerate(loader):
    loss = net(x.cuda()).mean()
    loss.backward()
    {guard}
        opt.step()
        opt.zero_grad()
        total += loss.item()
"""


@pytest.mark.parametrize(
    ("guard", "impact"), [("if (i + 1) % 8 == 0:", "low"), ("if i > 8:", "high")]
)
def test_a_read_once_in_several_passes_is_low(guard: str, impact: str) -> None:
    assert _impacts(LOADER + SHARED.format(guard=guard), "TL201") == {impact}


FORWARD = """import torch
from torch import nn
class Net(nn.Module):
    def forward(self, x):
        scale = torch.ones(x.shape[0]).to("cuda")
        return self.body({inputs}) * scale
"""


@pytest.mark.parametrize(("inputs", "impacts"), [("x", {"low"}), ("inputs_embeds=x", set[str]())])
def test_small_waits_beside_a_language_model_are_no_findings(
    inputs: str, impacts: set[str]
) -> None:
    assert _impacts(FORWARD.format(inputs=inputs), "TL203") == impacts


SAMPLER = """import torch
from torch import nn
net = nn.Linear(8, 8)
with torch.no_grad():
    for t in torch.linspace(0, 1, 256, device="cuda"):
        x = net(x) * t.item()
        {rest}
"""


@pytest.mark.parametrize(("rest", "impacts"), [("", set[str]()), ("x = env.step(x)", {"low"})])
def test_small_waits_of_a_network_that_samples_are_no_findings(
    rest: str, impacts: set[str]
) -> None:
    assert _impacts(SAMPLER.format(rest=rest), "TL209") == impacts


ATTENTION = """\
import torch
from torch import nn
class Attention(nn.Module):
    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(-2, -1) / 8, dim=-1) @ v
"""
STEP = """\
net = Attention()
net(x, x, x).sum().backward()
torch.optim.SGD(net.parameters(), 0.1).step()
"""


@pytest.mark.parametrize(
    ("name", "rest", "impact"),
    [("a.ipynb", "", "low"), ("a.ipynb", STEP, "high"), ("a.py", "", "high")],
)
def test_a_network_that_a_notebook_only_shows_is_low(name: str, rest: str, impact: str) -> None:
    text = ATTENTION + rest
    if name.endswith(".ipynb"):
        text = notebook(code(text))
    found = check(text, filename=name, select=("TL310",))
    assert {each.impact for each in found} == {impact}
