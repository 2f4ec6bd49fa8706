"""Where tensors are moved, and whether a piece of a batch is what is moved."""

from __future__ import annotations

import pytest

from torchlint.semantic.scope.target import Target
from torchlint.semantic.script import Script
from torchlint.source import Source

HEAD = """
import torch
from torch.utils.data import DataLoader
from mine import Images, other
from argparse import ArgumentParser
args = ArgumentParser().parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(Images())
for batch in loader:
    x, y = batch
    """


def _script(line: str) -> Script:
    return Script.parse(Source("train.py", f"{HEAD}{line}\n"))


@pytest.mark.parametrize(
    ("line", "moves"),
    [
        ("x.cuda()", True),
        ("x.to(device)", True),
        ("x.to(args.device)", True),
        ("x.to('cuda:1')", True),
        ("x.to('cpu')", False),
        ("(lambda place: x.to(place))(0)", False),
        ("x.to(str(args.place))", True),
        ("x.to(torch.half)", False),
        ("x.to(dtype=torch.half)", False),
        ("x.to(torch.zeros(3))", False),
    ],
)
def test_only_calls_that_lead_to_a_device_are_moves(line: str, moves: bool) -> None:
    script = _script(line)
    call = next(script.calls.of_methods("to", "cuda")).node
    assert (script.program.moves.move(call) is not None) is moves


@pytest.mark.parametrize(
    ("line", "never"),
    [
        ("x.cuda()", True),
        ("x.to(device)", True),
        ("x.to('mps')", False),
        ("x.to(args.device)", False),
        ("x.to(args.local_rank)", False),
    ],
)
def test_a_device_out_of_sight_may_be_apples(line: str, never: bool) -> None:
    script = _script(line)
    move = script.program.moves.move(next(script.calls.of_methods("to", "cuda")).node)
    assert move is not None
    assert script.program.moves.is_never_mps(move) is never


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("x.cuda()", 1),
        ("batch[0].cuda()", 1),
        ("x.view(-1)[:, 0].cuda()", 1),
        ("[part.cuda() for part in batch]", 1),
        ("x.float().cuda()", 0),
        ("x[y > 0].cuda()", 0),
        ("other.cuda()", 0),
    ],
)
def test_pieces_of_a_batch_lead_back_to_their_loader(line: str, count: int) -> None:
    script = _script(line)
    moves = [script.program.moves.move(site.node) for site in script.calls.of_methods("cuda")]
    found = [
        part for move in moves if move is not None for part in script.loaders.parts.of(move.moved)
    ]
    assert len(found) == count


@pytest.mark.parametrize(
    ("line", "never"),
    [
        ("x.cuda()", False),
        ("x.to(device)", False),
        ("x.to(0)", False),
        ("x.to(args.device)", False),
        ("x.to('mps')", True),
        ("x.to(torch.device('mps' if args.fast else 'cpu'))", True),
        ("x.to(torch.device('mps' if args.fast else args.device))", False),
        ("x.to('cpu' if args.slow else 'cuda')", False),
    ],
)
def test_a_device_that_is_none_of_cudas_is_in_sight(line: str, never: bool) -> None:
    script = _script(line)
    move = script.program.moves.move(next(script.calls.of_methods("to", "cuda")).node)
    assert move is not None
    assert script.program.moves.is_never_cuda(move) is never


FLOAT64 = """
import torch
from mine import net, loader, pick
from argparse import ArgumentParser
args = ArgumentParser().parse_args()
{made}
def evaluate(net, loader, device):
    total = 0.0
    for x, y in loader:
        total += net(x.to(device)).item()
    return total
{called}
"""


@pytest.mark.parametrize(
    ("made", "called", "only"),
    [
        ("device = torch.device('cuda')", "evaluate(net, loader, device)", True),
        ("device = 'cuda:1'", "evaluate(net, loader, device)", True),
        (
            "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
            "evaluate(net, loader, device)",
            True,
        ),
        ("", "evaluate(net.cuda(), loader, 'cuda')", True),
        ("", "evaluate(net, loader, 0)", True),
        ("device = 'cuda'", "", False),
        ("device = args.device", "evaluate(net, loader, device)", False),
        ("device = torch.device(args.device)", "evaluate(net, loader, device)", False),
        ("device = pick()", "evaluate(net, loader, device)", False),
        ("device = 'cuda' if args.gpu else pick()", "evaluate(net, loader, device)", False),
        ("from mine import device", "evaluate(net, loader, device)", False),
        ("device = 'mps'", "evaluate(net, loader, device)", False),
        ("device = 'cuda'", "evaluate(net.to(args.where_device), loader, device)", False),
        (
            "device = torch.accelerator.current_accelerator()",
            "evaluate(net, loader, device)",
            False,
        ),
    ],
)
def test_float64_needs_a_device_that_is_known(made: str, called: str, only: bool) -> None:
    text = FLOAT64.format(made=made, called=called)
    script = Script.parse(Source("train.py", text))
    (reading,) = script.calls.of_methods("item")
    assert script.program.moves.only_cuda(reading.node) is only
    for device, known in (("cuda", True), ("mps", False), ("xpu", False)):
        target = Target(device=device)
        told = Script.parse(Source("train.py", text), target)
        (reading,) = told.calls.of_methods("item")
        assert told.program.moves.only_cuda(reading.node) is known


def test_a_function_beside_it_does_not_make_a_device_unknown() -> None:
    text = FLOAT64.format(made="", called="evaluate(net, loader, 'cuda')")
    script = Script.parse(Source("train.py", text + "def other(x, device):\n    x.to(device)\n"))
    (reading,) = script.calls.of_methods("item")
    assert script.program.moves.only_cuda(reading.node)


def test_a_device_that_is_made_of_itself_is_unknown() -> None:
    for made in ("device = torch.device(device)", "args.device = torch.device(args.device)"):
        text = FLOAT64.format(made=made, called="evaluate(net, loader, args.device)")
        (reading,) = (script := Script.parse(Source("train.py", text))).calls.of_methods("item")
        assert not script.program.moves.only_cuda(reading.node)


@pytest.mark.parametrize(
    ("lines", "apart"),
    [
        ("x.cuda(0); y.cuda(1)", True),
        ("x.to('cuda:0'); y.to(torch.device('cuda', 1))", True),
        ("x.cuda(); y.to('cuda:1' if torch.cuda.is_available() else 'cpu')", True),
        ("x.to(args.device0); y.to(args.device1)", True),
        ("x.cuda(1); y.to('cuda:1')", False),
        ("x.to('cuda'); y.cuda(); y.cpu()", False),
        ("x.to(args.device); y.cuda()", False),
        ("gpu = 'cuda:0' if args.first else 'cuda:1'; x.to(gpu); y.to(gpu)", False),
    ],
)
def test_several_gpus_are_known_by_their_numbers(lines: str, apart: bool) -> None:
    script = _script(lines)
    assert (
        script.program.moves.lead_apart(next(script.calls.of_methods("to", "cuda")).node) is apart
    )
