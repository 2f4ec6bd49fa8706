"""Where tensors are moved, and whether a piece of a batch is what is moved."""

from __future__ import annotations

import pytest

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
        ("x.to(torch.half)", False),
        ("x.to(dtype=torch.half)", False),
        ("x.to(torch.zeros(3))", False),
    ],
)
def test_only_calls_that_lead_to_a_device_are_moves(line: str, moves: bool) -> None:
    script = _script(line)
    call = next(script.method_calls("to", "cuda"))
    assert (script.moves.move(call) is not None) is moves


@pytest.mark.parametrize(
    ("line", "never"),
    [
        ("x.cuda()", True),
        ("x.to(device)", True),
        ("x.to('mps')", False),
        ("x.to(args.device)", False),
        ("x.to(args.local_rank)", True),
    ],
)
def test_a_device_out_of_sight_may_be_apples(line: str, never: bool) -> None:
    script = _script(line)
    move = script.moves.move(next(script.method_calls("to", "cuda")))
    assert move is not None
    assert script.moves.is_never_mps(move) is never


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
    moves = [script.moves.move(call) for call in script.method_calls("cuda")]
    found = [part for move in moves if move is not None for part in script.parts.of(move.moved)]
    assert len(found) == count
