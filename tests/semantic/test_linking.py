"""A file is analyzed together with the definitions of other modules in its view."""

from __future__ import annotations

import libcst as cst
import pytest
from linked_modules import parse, view

from torchlint.semantic.loops.loops import Role
from torchlint.semantic.loops.modes import Mode
from torchlint.semantic.script import Script
from torchlint.semantic.values.gradient import Grad
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.view import LinkedModule, Place, Symbol
from torchlint.source import Source

DATA = """\
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __getitem__(self, index):
        return torch.zeros(3)


def make_loader(batch_size):
    return DataLoader(Images(), batch_size=batch_size)
"""
TRAIN = """\
import torch
from data import make_loader

net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    for x in make_loader(4):
        loss = net(x).mean()
        loss.backward()
        optimizer.step()
"""
PROGRAM = {"data.py": DATA, "train.py": TRAIN}


def _expression(script: Script, code: str) -> cst.BaseExpression:
    """Return the last expression of the file itself with this code."""
    found = [
        node
        for kind in (cst.Name, cst.Attribute, cst.Call)
        for node in script.tree.all(kind)
        if script.tree.is_own(node) and script.code(node) == code
    ]
    return found[-1]


def test_a_loader_of_another_module_feeds_the_loop() -> None:
    script = parse(PROGRAM, "train.py")
    (loop,) = (loop for loop in script.loops.of(Role.TRAIN_BATCH) if script.tree.is_own(loop.node))
    assert loop.loader is not None
    made = script.program.loader_call(loop.loader)
    assert made is not None
    assert script.tree.place(made) == Place("data.py", 11)


def test_callers_in_another_module_pass_the_arguments() -> None:
    script = parse(PROGRAM, "data.py")
    (call,) = script.calls.of("torch.utils.data.DataLoader")
    assert script.tree.is_own(call.node)
    assert call.argument("batch_size").literal == 4


@pytest.mark.parametrize(
    ("imported", "called"),
    [
        ("from data import make_loader", "make_loader(4)"),
        ("from data import make_loader as make", "make(4)"),
        ("from data import *", "make_loader(4)"),
        ("import data", "data.make_loader(4)"),
        ("import data as d", "d.make_loader(4)"),
    ],
)
def test_every_form_of_import_leads_there_and_back(imported: str, called: str) -> None:
    train = f"{imported}\n\nloader = {called}\nfor x in loader:\n    print(x)\n"
    texts = {"data.py": DATA, "train.py": train}
    script = parse(texts, "train.py")
    assert script.kind(_expression(script, "loader")) is Kind.LOADER
    assert script.name(_expression(script, called.partition("(")[0])) is None
    back = parse(texts, "data.py")
    (call,) = back.calls.of("torch.utils.data.DataLoader")
    assert call.argument("batch_size").literal == 4


def test_a_name_is_followed_through_the_import_of_a_library_in_another_module() -> None:
    texts = {
        "compat.py": "from torch.utils.data import DataLoader as Loader\n",
        "train.py": "from compat import Loader\n\nloader = Loader([])\n",
    }
    script = parse(texts, "train.py")
    assert script.name(_expression(script, "Loader")) == "torch.utils.data.DataLoader"


def test_a_name_that_is_bound_twice_has_the_last_value() -> None:
    texts = {
        "parts.py": "import torch\n\nnet = None\nnet = torch.nn.Linear(2, 2)\n",
        "train.py": "from parts import net\n\nprint(net)\n",
    }
    script = parse(texts, "train.py")
    assert script.kind(_expression(script, "net")) is Kind.MODULE
    assert len(script.scopes.reaching(cst.ensure_type(_expression(script, "net"), cst.Name))) == 1


def test_what_is_bound_again_after_its_import_is_no_longer_the_import() -> None:
    texts = {
        "parts.py": "import torch\n\nnet = torch.nn.Linear(2, 2)\n",
        "train.py": "from parts import net\n\nnet = 3\nprint(net)\n",
    }
    script = parse(texts, "train.py")
    assert script.kind(_expression(script, "net")) is Kind.NUMBER


def test_gradients_are_off_where_every_caller_turns_them_off() -> None:
    texts = {
        "steps.py": "def evaluate(net, x):\n    return net(x)\n",
        "train.py": "import torch\nfrom steps import evaluate\n\n"
        "with torch.no_grad():\n    evaluate(torch.nn.Linear(1, 1), torch.ones(1))\n",
    }
    script = parse(texts, "steps.py")
    assert script.values.gradients.grad(_expression(script, "net(x)")) is Grad.OFF


def test_names_of_one_module_are_not_those_of_another() -> None:
    texts = {
        "other.py": "from torch.nn import *\n\nx = 1\n\n\ndef set_x():\n    global x\n    x = 2\n",
        "train.py": "import other\n\nx = 'a'\nprint(x, Linear)\n",
    }
    script = parse(texts, "train.py")
    assert script.kind(_expression(script, "x")) is not Kind.NUMBER
    assert script.name(_expression(script, "Linear")) is None


def test_what_is_unseen_is_not_taken_for_a_library() -> None:
    texts = {"train.py": "from torch_tools import no_grad\n\nprint(no_grad)\n"}
    alone = Script.parse(Source("train.py", texts["train.py"]))
    assert alone.name(_expression(alone, "no_grad")) == "torch_tools.no_grad"
    seen = view(texts, "train.py", frozenset({"torch_tools.no_grad"}))
    script = Script.parse(Source("train.py", texts["train.py"]), None, None, seen)
    assert script.name(_expression(script, "no_grad")) == ".torch_tools.no_grad"


def test_modules_that_import_each_other_are_followed_once() -> None:
    texts = {"one.py": "from two import a\n\nprint(a)\n", "two.py": "from one import a\n"}
    script = parse(texts, "one.py")
    assert script.kind(_expression(script, "a")) is Kind.UNKNOWN


def test_a_linked_node_stands_behind_the_own_text_and_names_its_place() -> None:
    script = parse(PROGRAM, "train.py")
    foreign = next(node for node in script.tree.all(cst.ClassDef) if not script.tree.is_own(node))
    span = script.span(foreign)
    assert script.source.text == TRAIN
    assert span.start >= len(TRAIN)
    assert script.tree.source.text[span.start : span.end].startswith("class Images")
    assert str(script.tree.place(foreign)) == "data.py:5"
    assert script.tree.place_at(span.start) == Place("data.py", 5)
    assert script.tree.place_at(0) == Place("train.py", 1)


def test_a_module_that_does_not_parse_is_left_out() -> None:
    seen = view(PROGRAM, "train.py")
    (data,) = seen.modules
    broken = data._replace(excerpts=(data.excerpts[0]._replace(text="def ("),))
    script = Script.parse(Source("train.py", TRAIN), None, None, seen._replace(modules=(broken,)))
    assert script.tree.source.text == TRAIN
    assert script.name(_expression(script, "make_loader")) == ".data.make_loader"


def test_what_a_linked_module_defines_out_of_view_is_unseen() -> None:
    seen = view(PROGRAM, "train.py")
    (data,) = seen.modules
    part = data._replace(excerpts=(*data.excerpts[:-2], data.excerpts[-1]))
    script = Script.parse(Source("train.py", TRAIN), None, None, seen._replace(modules=(part,)))
    (made,) = script.calls.of("torch.utils.data.DataLoader")
    dataset = made.given("dataset", 0)
    assert dataset is not None
    assert script.name(cst.ensure_type(dataset.value, cst.Call).func) == ".Images"


def test_an_empty_module_is_left_out() -> None:
    seen = view({"train.py": TRAIN}, "train.py")._replace(modules=(LinkedModule("a.py", ()),))
    script = Script.parse(Source("train.py", TRAIN), None, None, seen)
    assert len(script.tree.modules) == 1


STEPS = """\
from torch.utils.data import DataLoader


def load(images):
    return DataLoader(images)


def train(loader, device):
    for batch in loader:
        move(batch.to(device))
"""
RUN = """\
import torch
from torch.utils.data import TensorDataset
from steps import load, train

train(load(TensorDataset(torch.ones(9))), torch.device("cuda"))
"""


def _steps(*called: str) -> Script:
    texts = {"steps.py": STEPS, "run.py": RUN}
    return parse(texts, "steps.py", None, frozenset(Symbol("steps.py", name) for name in called))


def test_a_dataset_is_known_if_all_callers_are_in_view() -> None:
    script = _steps()
    assert script.loaders.provenance.unseen_tensors(_expression(script, "images")) == ""


def test_a_dataset_that_unseen_callers_may_pass_is_not_known() -> None:
    script = _steps("load")
    unseen = script.loaders.provenance.unseen_tensors(_expression(script, "images"))
    assert unseen == "what other modules pass as `images`"


@pytest.mark.parametrize("called", ["", "train"])
def test_a_device_is_sure_only_if_all_callers_are_in_view(called: str) -> None:
    script = _steps(called)
    (call,) = (site.node for site in script.calls.of_methods("to") if script.tree.is_own(site.node))
    move = script.program.moves.move(call)
    assert move is not None
    assert script.program.moves.is_never_mps(move) is (not called)
    expected = "`train` may be called from other modules" if called else ""
    assert script.loaders.provenance.called_elsewhere(move.moved) == expected


def test_methods_are_called_unseen_with_their_class() -> None:
    texts = {"net.py": "class Net:\n    def forward(self, x):\n        return x\n"}
    script = parse(texts, "net.py", None, frozenset({Symbol("net.py", "Net")}))
    (forward,) = script.tree.all(cst.FunctionDef)
    assert script.functions.escapes(forward)


def test_a_function_that_only_view_code_calls_does_not_escape() -> None:
    script = _steps("load")
    assert {
        each.name.value
        for each in script.tree.all(cst.FunctionDef)
        if script.functions.escapes(each)
    } == {"load"}


@pytest.mark.parametrize("called", [(), ("load",)])
def test_a_main_guard_protects_what_only_its_module_runs(called: tuple[str, ...]) -> None:
    texts = {
        "data.py": "def load():\n    return start()\n",
        "run.py": "from data import load\n\nif __name__ == '__main__':\n    load()\n",
    }
    symbols = frozenset(Symbol("data.py", name) for name in called)
    script = parse(texts, "data.py", None, symbols)
    (call,) = (each for each in script.tree.all(cst.Call) if script.code(each) == "start()")
    assert script.loops.guard.protects(call) is (not called)
    assert not script.loops.guard.at_import(call)


@pytest.mark.parametrize("module", ["shapes", ".shapes", "torchvision.datasets"])
def test_an_unseen_class_is_named_with_its_module(module: str) -> None:
    joint = f"{module}.Shapes"
    texts = {"train.py": f"from {module} import Shapes\n\nshapes = Shapes()\n"}
    seen = view(texts, "train.py", frozenset({joint}))
    script = Script.parse(Source("train.py", texts["train.py"]), None, None, seen)
    unseen = script.loaders.provenance.unseen_tensors(_expression(script, "shapes"))
    assert unseen == f"`Shapes` of module `{module}`"


def test_top_level_code_of_two_modules_is_kept_apart() -> None:
    texts = {
        "other.py": "import torch\n\nnet = torch.nn.Dropout()\nnet.eval()\n"
        "torch.set_grad_enabled(False)\n",
        "train.py": "import other\nimport torch\n\nnet = torch.nn.Dropout()\nnet(torch.ones(1))\n",
    }
    script = parse(texts, "train.py")
    call = cst.ensure_type(_expression(script, "net(torch.ones(1))"), cst.Call)
    assert script.modules.modes.mode(call, call.func) is Mode.TRAIN
    assert script.values.gradients.grad(call) is Grad.ON
    entry = script.program.entry(call)
    assert entry is not None
    assert entry.block is script.tree.modules[0]


def test_the_framework_of_another_module_owns_the_loop() -> None:
    texts = {
        "engine.py": "import lightning\n\n\ndef run(net):\n    lightning.Trainer().fit(net)\n",
        "train.py": "from engine import run\n\nrun(None)\n",
    }
    assert parse(texts, "train.py").program.devices.framework == "lightning"


def test_readers_of_a_name_are_found_in_every_module() -> None:
    texts = {
        "parts.py": "scale = 3\nprint(scale)\n",
        "train.py": "from parts import scale as factor\n\nprint(factor)\n",
    }
    for path in texts:
        script = parse(texts, path)
        (binding,) = (each for each in script.scopes.module_bindings() if each.name == "scale")
        assert {use.value for use in script.scopes.uses(binding)} == {"scale", "factor"}


@pytest.mark.parametrize("path", ["a.py", "b.py", "main.py"])
@pytest.mark.parametrize("guarded", [False, True])
def test_the_first_node_of_a_program_is_the_same_for_each_file(path: str, guarded: bool) -> None:
    start = "if __name__ == '__main__':\n    " if guarded else ""
    texts = {
        "a.py": "move(1)\n",
        "b.py": "import a\n\nmove(2)\n",
        "main.py": f"import b\n\n{start}move(3)\n",
    }
    script = parse(texts, path)
    first = script.loops.guard.first(script.tree.all(cst.Call))
    assert first is not None
    assert script.tree.place(first).path == ("main.py" if guarded else "a.py")


def test_an_import_of_another_module_is_not_removed_here() -> None:
    names = "from torch.autograd import Variable\n"
    train = "import torch\nfrom names import *\nx = Variable(torch.ones(3))\nx.backward()\n"
    script = parse({"names.py": names, "train.py": train}, "train.py")
    assert script.edits.without_imports(_expression(script, "Variable")) == ()


def test_a_part_of_a_network_that_is_out_of_view_may_heed_the_mode() -> None:
    parts = """\
import torch.nn as nn
class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.part = double_conv(n)
"""
    train = "from parts import Block\nnet = Block(3)\nnet(1)\n"
    script = parse({"parts.py": parts, "train.py": train}, "train.py")
    assert script.modules.modes.depends_on_mode(_expression(script, "net")) is None
