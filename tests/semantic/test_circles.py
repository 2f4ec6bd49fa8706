"""No question goes on without end, whatever is made of itself, and none fails.

Every circle is made by many makers, and values of every rule's examples are made of each other;
`PYTHONPATH=tests python -m fuzz circle` and `rewiring` try many more.
"""

from __future__ import annotations

import contextlib
from itertools import islice
from random import Random

import pytest
from circles import CIRCLES, MAKERS, circular
from rewired import rewired

from torchlint.audit import audit
from torchlint.config import Settings
from torchlint.engine import check_source
from torchlint.registry import load_registry
from torchlint.source import Source
from torchlint.testing import examples_of

REGISTRY = load_registry()
ALL = Settings(select=("ALL",), unsafe_fixes=True)
RULES = REGISTRY.select(ALL)
SCRIPTS = 2
"""How many scripts of each circle there are in each place."""


@pytest.mark.parametrize("inside", [True, False], ids=["in a function", "in the module"])
@pytest.mark.parametrize("circle", CIRCLES)
def test_what_is_made_of_itself(circle: str, inside: bool) -> None:
    start = list(CIRCLES).index(circle) * SCRIPTS
    orders = (MAKERS[at:] + MAKERS[:at] for at in range(start % len(MAKERS), len(MAKERS) * 9, 7))
    texts = (circular(circle, tuple(order), inside=inside) for order in orders)
    for text in islice(filter(None, texts), SCRIPTS):
        source = Source("train.py", text)
        assert check_source(source, RULES, ALL).is_whole, text
        assert audit(source, REGISTRY, ALL).warnings == (), text


@pytest.mark.parametrize("code", [head.code for head in RULES if head.code > "TL1"])
def test_what_a_rule_asks_about_may_be_made_of_itself(code: str) -> None:
    chance = Random(code)
    examples = [example.before for example in examples_of(REGISTRY.find(code).load())]
    for example in chance.choices(examples, k=SCRIPTS):
        text = example
        with contextlib.suppress(SyntaxError, ValueError):
            text = rewired(example, chance)
        source = Source("train.py", text)
        assert check_source(source, RULES, ALL).is_whole, text
        assert audit(source, REGISTRY, ALL).warnings == (), text


IMPORTS = """\
import torch, torch.nn.functional as F, torch.distributed as dist
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Subset
"""
TRAINING = """\
for x, y in DataLoader(data):
    x, y = x.to(cfg.device), y.to(cfg.device)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if first: print(loss.item())
"""


@pytest.mark.parametrize(
    "text",
    [
        f"from mine import cfg\ncfg.device = torch.device(cfg.device)\n{TRAINING}",
        "while True:\n    net = nn.DataParallel(net)\n    net.eval()\n" + TRAINING,
        "while True:\n    first = not first\n" + TRAINING,
        "while True:\n    crit = crit.cuda()\n    m = nn.CrossEntropyLoss()\n    crit(net(x), y)\n",
        "while True:\n    data = Subset(data, range(3))\n    DataLoader(data, batch_size=4)\n"
        + TRAINING,
        "dist.init_process_group()\nwhile True:\n    loader = DataLoader(data, "
        "batch_sampler=BatchSampler(loader.batch_sampler, 2, False))\n" + TRAINING,
        "while True:\n    a = [a, 1]\n    net(torch.tensor(a).cuda()).backward()\n    opt.step()\n",
        "while True:\n    w = w * 2\n    z = F.one_hot(ids, 3).float() @ w\n",
        "while True:\n    w = nn.Parameter(w)\n    z = F.one_hot(ids, 3).float() @ w\n",
        "while True:\n    i = i.long()\n    z = torch.zeros(3, 4).scatter_(1, i, 1) @ w\n",
        "def f():\n    return f()\nnet = f().cuda()\nloader = f()\n" + TRAINING,
        "x = np.sqrt()\n",
        "def f(q, k, v):\n    mask = mask.triu(1)\n"
        "    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)\n",
        "class Frozen(nn.Module):\n    def __init__(self, net):\n        self.module = net\n"
        "    def forward(self, x):\n        return self.module(x)\n"
        "def measure(net):\n    net.eval()\n    return net(x)\nprint(measure(Frozen(net)))\n",
    ],
)
def test_circles_that_had_no_end(text: str) -> None:
    source = Source("train.py", IMPORTS + text)
    assert check_source(source, RULES, ALL).is_whole
    assert audit(source, REGISTRY, ALL).warnings == ()
