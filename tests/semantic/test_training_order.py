"""What steps what: acts of a loop, schedulers, frozen parts, modes that come round."""

from __future__ import annotations

import libcst as cst
import pytest

from torchlint.semantic.loops.loops import Role
from torchlint.semantic.script import Script
from torchlint.semantic.training.updates import Act
from torchlint.source import Source

SCRIPT = """\
import torch
from torch.optim import lr_scheduler
from elsewhere import make_scheduler, train_more

def update(optimizer, loss):
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()

def validate(model):
    model.eval()
    print(model(held_out))

def freeze(module):
    for p in module.parameters():
        p.requires_grad = False

net, other = build(), build_other()
opt = torch.optim.SGD(net.parameters(), 0.1)
opt2 = torch.optim.SGD(other.parameters(), 0.1)
decay = lr_scheduler.StepLR(opt, 30)
hidden = make_scheduler(opt2)
freeze(net.body)
late = torch.optim.Adam(net.parameters())
for epoch in range(9):
    for x, y in train_loader:
        opt.zero_grad()
        update(opt, criterion(net(x), y))
    decay.step()
    hidden.step()
    train_more(net, opt2)
    validate(net)
"""


@pytest.fixture(scope="module")
def script() -> Script:
    return Script.parse(Source("train.py", SCRIPT))


def test_acts_are_found_through_functions_in_their_order(script: Script) -> None:
    (loop,) = script.loops.of(Role.TRAIN_BATCH)
    acts = script.optimizers.updates.within(loop.node.body)
    assert [each.act for each in acts] == [Act.CLEAR, Act.BACKWARD, Act.CLIP, Act.STEP]
    assert {script.code(each.at.func) for each in acts[1:]} == {"update"}


def test_a_function_out_of_sight_that_trains_is_a_step(script: Script) -> None:
    (epochs,) = script.loops.of(Role.EPOCH)
    last = script.optimizers.updates.within(epochs.node.body)[-1]
    assert (last.act, last.in_sight, script.code(last.call.func)) == (
        Act.STEP,
        False,
        "train_more",
    )


def test_optimizers_are_told_apart_through_parameters(script: Script) -> None:
    (loop,) = script.loops.of(Role.TRAIN_BATCH)
    stepped = script.optimizers.updates.within(loop.node.body)[-1].optimizer
    first, second = (script.optimizers.schedulers.steps[at].made[0].optimizer for at in (0, 1))
    assert script.optimizers.updates.same_optimizer(stepped, first) is True
    assert script.optimizers.updates.same_optimizer(stepped, second) is False


def test_schedulers_know_how_they_were_made(script: Script) -> None:
    shown, hidden = script.optimizers.schedulers.steps
    assert shown.names == {"StepLR"}
    assert hidden.names == frozenset()
    assert [each.in_sight for each in hidden.made] == [False]


def test_what_is_frozen_before_an_optimizer_and_not_after(script: Script) -> None:
    made = {
        script.code(line.targets[0].target): line.value
        for line in script.tree.all(cst.Assign)
        if isinstance(line.value, cst.Call)
    }
    network = next(
        site.receiver
        for site in script.calls.of_methods("parameters")
        if script.code(site.receiver) == "net"
    )
    assert script.modules.freezing.frozen(network, made["opt"]) is None
    frozen = script.modules.freezing.frozen(network, made["late"])
    assert frozen is not None
    assert (frozen.path, frozen.learns) == ("net.body", False)


def test_a_mode_comes_round_to_training(script: Script) -> None:
    (stuck,) = script.modules.stuck_modes.all
    assert script.code(stuck.switch) == "model.eval()"
    assert script.code(stuck.at) == "validate(net)"
    assert script.code(stuck.network) == "net"
