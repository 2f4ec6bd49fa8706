"""How far the fixes of optimizers can be trusted, and that those of one call compose."""

from __future__ import annotations

import textwrap

import pytest

from torchlint.config import Settings
from torchlint.engine import check_source, fix_source
from torchlint.finding import Finding, Safety
from torchlint.registry import load_registry
from torchlint.source import Source

REGISTRY = load_registry()


def _source(text: str) -> Source:
    return Source("train.py", textwrap.dedent(text))


def _settings(*codes: str, target: tuple[int, int] | None = None) -> Settings:
    return Settings(select=codes, unsafe_fixes=True, target_torch=target)


def _finding(text: str, code: str, target: tuple[int, int] | None = None) -> Finding:
    settings = _settings(code, target=target)
    (found,) = check_source(_source(text), REGISTRY.select(settings), settings).findings
    return found


def _safety(text: str, code: str, target: tuple[int, int] | None = None) -> Safety | None:
    fix = _finding(text, code, target).fix
    return None if fix is None else fix.safety


STEPPED = """
    import torch
    def main(model, loader):
        model.cuda()
        optimizer = torch.optim.Adam(model.parameters())
        for batch in loader:
            optimizer.zero_grad()
            model(batch).backward()
            optimizer.step()
"""
RETURNED = """
    import torch
    def build(model):
        optimizer = torch.optim.Adam(model.parameters())
        return optimizer
"""
SCALED = """
    import torch
    def main(model, loader):
        optimizer = torch.optim.Adam(model.parameters())
        scaler = torch.amp.GradScaler("cuda")
        for batch in loader:
            scaler.scale(model(batch)).backward()
            scaler.step(optimizer)
            print(model.weight.grad)
"""
LOADED = """
    import torch
    def main(model, path):
        optim_g = torch.optim.Adam(model.parameters())
        optim_g.load_state_dict(torch.load(path))
        for batch in loader:
            model(batch).backward()
            optim_g.step()
"""


@pytest.mark.parametrize(
    ("text", "target", "safety"),
    [
        pytest.param(STEPPED, (2, 4), Safety.CLOSE, id="stepped with in the file"),
        pytest.param(STEPPED, (2, 3), Safety.UNSAFE, id="the GPU decides before torch 2.4"),
        pytest.param(RETURNED, None, Safety.UNSAFE, id="handed to another file"),
        pytest.param(SCALED, None, Safety.UNSAFE, id="scaled gradients are read"),
        pytest.param(LOADED, None, None, id="state is loaded"),
    ],
)
def test_fused(text: str, target: tuple[int, int] | None, safety: Safety | None) -> None:
    assert _safety(text, "TL501", target) is safety


def test_what_to_set_after_loading_names_the_optimizer() -> None:
    finding = _finding(LOADED, "TL501")
    assert 'for group in optim_g.param_groups: group["fused"] = True' in finding.message
    assert [note.message for note in finding.notes] == [
        "a state saved without `fused` switches it off"
    ]


ZEROED = """
    import torch
    from torch import nn
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
            self.head = nn.Linear(4, 1)
            {extra}
        def forward(self, x):
            {forward}
    def main(loader):
        net = Net().to("cpu")
        optimizer = torch.optim.SGD({parameters}, lr=0.1)
        for x, y in loader:
            optimizer.zero_grad(set_to_none=False)
            loss = nn.functional.mse_loss(net(x), y)
            {between}
            loss.backward()
            optimizer.step()
"""
WHOLE = {
    "extra": "pass",
    "forward": "return self.head(self.body(x))",
    "parameters": "net.parameters()",
    "between": "pass",
}


@pytest.mark.parametrize(
    ("changes", "safety"),
    [
        pytest.param({}, Safety.EXACT, id="every layer on every path"),
        pytest.param(
            {"forward": "return self.head(x) if x.sum() > 0 else self.head(self.body(x))"},
            Safety.UNSAFE,
            id="a branch",
        ),
        pytest.param({"forward": "return self.head(x)"}, Safety.UNSAFE, id="a layer left out"),
        pytest.param(
            {"forward": "return self.head(self.body(x).detach())"}, Safety.UNSAFE, id="cut off"
        ),
        pytest.param(
            {"extra": "self.head.weight.requires_grad = False"}, Safety.UNSAFE, id="frozen"
        ),
        pytest.param({"extra": "self.other = make(4)"}, Safety.UNSAFE, id="a part out of sight"),
        pytest.param({"parameters": "groups(net)"}, Safety.UNSAFE, id="parameters out of sight"),
        pytest.param({"between": "if y.sum() > 0: continue"}, Safety.UNSAFE, id="a pass skipped"),
    ],
)
def test_zeroed(changes: dict[str, str], safety: Safety) -> None:
    assert _safety(ZEROED.format(**{**WHOLE, **changes}), "TL502") is safety


def test_one_edit_of_one_call() -> None:
    before = """\
        import torch
        def main(model, loader):
            model.cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False, momentum=0.9)
            for x in loader:
                optimizer.zero_grad(set_to_none=False)
                model(x).backward()
                optimizer.step()
    """
    settings = _settings("TL501", "TL502", "TL503", "TL504", "TL507", "TL509")
    fixed = fix_source(_source(before), REGISTRY.select(settings), settings)
    assert fixed.is_whole
    lines = fixed.after.text.splitlines()
    made = "torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)"
    assert lines[3].strip() == f"optimizer = {made}"
    assert lines[5].strip() == "optimizer.zero_grad()"


def test_the_two_rules_of_one_call_take_turns() -> None:
    text = """
        import torch
        def main(model):
            optimizer = torch.optim.Adam(model.cuda().parameters(), foreach=False)
    """
    settings = _settings("TL501", "TL509")
    found = check_source(_source(text), REGISTRY.select(settings), settings).findings
    assert [each.code for each in found] == ["TL509"]
