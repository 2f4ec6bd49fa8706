"""What a rule finds in code of torch it never says of the same code of another library."""

from __future__ import annotations

import re

import pytest

from torchlint.config import Settings
from torchlint.engine import check_source
from torchlint.registry import Registry, Selection, load_registry
from torchlint.source import Source
from torchlint.testing.examples import examples_of

_LIBRARY = (
    r"(torch\w*|pytorch_lightning|lightning|accelerate|transformers|diffusers|ignite|timm"
    r"|deepspeed|trl|catalyst|mmengine)"
)
_PLAIN = re.compile(r"^ *import \w+(?:, \w+)*(?= *(?:[;#\n]|$))", re.MULTILINE)
_NAME = re.compile(rf"\b{_LIBRARY}\b")
_OTHERS = re.compile(rf"\b(from|import) {_LIBRARY}\b")
_NAMED_AFTER_IT = re.compile(r"\b(\w+)_pytorch\b")
_OF_ANY_FILE = {"TL001", "TL002"}


def of_another_library(text: str) -> str:
    """Return a text whose torch is `mytorch`, under the names that it had."""
    plain = _PLAIN.sub(lambda line: _NAME.sub(r"my\1 as \1", line[0]), text)
    plain = _NAMED_AFTER_IT.sub(r"\1_other", plain)
    return _OTHERS.sub(r"\1 my\2", plain)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_registry()


@pytest.mark.parametrize("code", [head.code for head in load_registry().rules])
def test_another_library_is_none_of_ours(registry: Registry, code: str) -> None:
    rules = Selection(registry.rules, registry.known)
    for example in examples_of(registry.find(code).load()):
        text = of_another_library(example.before)
        found = check_source(Source("a.py", text), rules, Settings()).findings
        assert {each.code for each in found} <= _OF_ANY_FILE, text


IMPORTS = {
    "import torch": True,
    "import torch.nn as nn": True,
    "from torch import nn": True,
    "from torch.nn import *": True,
    "import os, torchvision": True,
    "import pytorch_lightning as pl": True,
    "from lightning import Trainer": True,
    "import horovod.torch as hvd": True,
    "from einops.layers.torch import Rearrange": True,
    "from common import torch": True,
    "from common import *": True,
    "try:\n    import torch\nexcept ImportError:\n    torch = None": True,
    "if True:\n    from torch import nn": True,
    'import importlib\ntorch = importlib.import_module("torch")': True,
    "import mytorch": False,
    "import mytorch as torch": False,
    "from mytorch import nn  # like torch": False,
    "from mytorch import *\ntorch = 1": False,
    "import jax as torch\nfrom common import *": False,
    '"""Like torch."""\nimport jax': False,
    "import tinytorch, minitorch": False,
    "import keras": False,
    "": False,
}
LOOP = """
def train(net, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        x, y = x.cuda(), y.cuda()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


@pytest.mark.parametrize(("imported", "ours"), IMPORTS.items())
def test_a_file_is_ours_by_what_it_imports(registry: Registry, imported: str, ours: bool) -> None:
    rules = Selection(registry.rules, registry.known)
    found = check_source(Source("a.py", imported + "\n" + LOOP), rules, Settings()).findings
    assert ("TL207" in {each.code for each in found}) == ours


def test_torch_through_a_star_import_makes_no_fix_certain(registry: Registry) -> None:
    text = """from common import *

def evaluate(model, loader):
    model.eval()
    total = 0
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        total += torch.nn.functional.cross_entropy(model(x), y).item()
    return total
"""
    rules = Selection(registry.rules, registry.known)
    found = check_source(Source("a.py", text), rules, Settings(unsafe_fixes=True)).findings
    assert "TL601" in {each.code for each in found}
    for each in found:
        assert each.fix is None or each.fix.safety.word in ("show", "unsafe")
        assert each.fix is None or not any("import torch" in edit.text for edit in each.fix.edits)
