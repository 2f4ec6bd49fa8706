"""Training steps, and what a file says of precision and of gradient scaling."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from torchlint.semantic.script import Script
from torchlint.source import Source


def _script(text: str) -> Script:
    return Script.parse(Source("train.py", textwrap.dedent(text)))


STEP = """
    import torch
    import torch.nn.functional as F
    def train(model, head, loader, optimizer):
        for x, y in loader:
            x = x.cuda()
            features = model(x)
            optimizer.zero_grad()
            loss = F.cross_entropy(head(features), y)
            loss = loss / 2
            print(loss)
            loss.backward()
            optimizer.step()
"""


def test_a_step_is_the_backward_pass_and_what_its_loss_is_made_of() -> None:
    script = _script(STEP.replace("head(", "head_net(").replace("head,", "head_net,"))
    (step,) = script.loops.steps.all
    assert [script.code(call) for call in step.forwards] == ["model(x)", "head_net(features)"]
    assert [script.code(line) for line in step.lines] == [
        "features = model(x)",
        "optimizer.zero_grad()",
        "loss = F.cross_entropy(head_net(features), y)",
        "loss = loss / 2",
    ]
    assert script.loops.steps.is_alone(step)
    assert script.loops.steps.updates(step)


HALVED = """
    import torch
    from apex import amp
    def train(model, loader, optimizer, half):
        for x, y in loader:
            loss = (model(x.cuda()) - y.cuda()).square().mean()
            if half:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optimizer.step()
"""


def test_what_scales_a_loss_may_stand_beside_the_backward_pass() -> None:
    script = _script(HALVED)
    starts = [script.code(step.lines[0]).partition(" ")[0] for step in script.loops.steps.all]
    assert starts == ["loss", "loss"]


GIVEN = """
    import torch
    def update(loss, optimizer):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    def train(model, loader, optimizer):
        for x, y in loader:
            update((model(x) - y).square().mean(), optimizer)
"""


def test_a_function_goes_backward_on_the_loss_of_its_only_caller() -> None:
    (step,) = _script(GIVEN).loops.steps.all
    assert len(step.forwards) == 1
    assert step.lines == ()
    twice = GIVEN + "            update(model(y).mean(), optimizer)\n"
    assert _script(twice).loops.steps.all == ()


def test_a_second_loss_in_the_loop_is_company() -> None:
    script = _script(STEP + "            model(y).sum().backward()\n")
    assert [script.loops.steps.is_alone(step) for step in script.loops.steps.all] == [False, False]


def test_nothing_is_updated_by_an_attack() -> None:
    script = _script(STEP.replace("optimizer.step()", "x = x + x.grad"))
    (step,) = script.loops.steps.all
    assert not script.loops.steps.updates(step)


def test_outside_a_loop_there_is_no_step() -> None:
    assert (
        _script("import torch\ndef f(model, x):\n    model(x).sum().backward()\n").loops.steps.all
        == ()
    )


@pytest.mark.parametrize(
    ("line", "low"),
    [
        ("with torch.autocast('cuda'): pass", True),
        ("model.half()", True),
        ("x = torch.zeros(3, dtype=torch.bfloat16)", True),
        ("parser.add_argument('--fp16')", True),
        ("# autocast would be faster", False),
        ("sample, example = amplitude", False),
    ],
)
def test_low_precision_is_spoken_of_in_code(line: str, low: bool) -> None:
    assert _script(f"import torch\n{line}\n").values.precision.mentions_low_precision is low


@pytest.mark.parametrize(
    ("line", "wide"),
    [
        ("model = model.double()", True),
        ("x = torch.tensor([1.0], dtype=torch.float64)", True),
        ("x = torch.linalg.inv(a)", True),
        ("total = torch.zeros((), dtype=torch.float64)", False),
        ("total += loss.detach().double()", False),
        ("x = x.float()", False),
    ],
)
def test_wide_arithmetic_is_told_from_a_wide_sum(line: str, wide: bool) -> None:
    assert _script(f"import torch\n{line}\n").values.precision.is_wide is wide


def test_autocast_is_found_behind_names_and_choices() -> None:
    script = _script(
        """
        import contextlib
        import torch
        context = contextlib.nullcontext() if cpu else torch.autocast("cuda", dtype=torch.bfloat16)
        def here():
            return torch.cuda.amp.autocast()
        with context:
            pass
        with here():
            pass
        with open("a"):
            pass
        """
    )
    calls = [script.values.precision.autocast(item.item) for item in script.tree.all(cst.WithItem)]
    assert [call and script.code(call.func) for call in calls] == [
        "torch.autocast",
        "torch.cuda.amp.autocast",
        None,
    ]
    assert calls[0] is not None
    assert script.values.precision.dtype(calls[0]) == "torch.bfloat16"


SCALED = """
    import torch
    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for i, x in enumerate(loader):
            loss = scaler.scale(model(x))
            if x.is_cuda:
                loss.backward()
            else:
                model(x).backward()
            if i % 2:
                scaler.step(optimizer)
                scaler.update()
"""


def test_calls_of_a_scaler_and_where_they_stand() -> None:
    script = _script(SCALED)
    scaling = script.optimizers.scaling
    assert [each.method for each in scaling.all] == ["scale", "step", "update"]
    ((backward, scale),) = scaling.backwards
    assert script.code(scale.node) == "scaler.scale(model(x))"
    (step,) = scaling.of("step")
    assert scaling.boundary(step.node) is not None
    assert scaling.boundary(backward) is None
    plain = next(
        site.node for site in script.calls.of_methods("backward") if site.node is not backward
    )
    assert scaling.together(backward, step.node)
    assert not scaling.together(backward, plain)
    assert scaling.starts_by_default
    assert not scaling.escapes


@pytest.mark.parametrize(
    ("made", "off", "default"),
    [
        ('torch.amp.GradScaler("cuda", enabled=False)', True, True),
        ('torch.amp.GradScaler("cuda", enabled=fp16)', False, True),
        ('torch.amp.GradScaler("cuda", growth_interval=10)', False, True),
        ('torch.amp.GradScaler("cuda", 1024.0)', False, False),
        ("torch.cuda.amp.GradScaler(1024.0)", False, False),
        ("torch.cuda.amp.GradScaler(init_scale=1024.0)", False, False),
    ],
)
def test_how_a_scaler_is_made(made: str, off: bool, default: bool) -> None:
    scaling = _script(SCALED.replace('torch.amp.GradScaler("cuda")', made)).optimizers.scaling
    assert scaling.is_off is off
    assert scaling.starts_by_default is default


def test_a_scaler_that_is_handed_on_escapes() -> None:
    assert _script(SCALED + "            finish(scaler)\n").optimizers.scaling.escapes
