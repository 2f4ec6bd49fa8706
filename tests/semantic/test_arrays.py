"""What is surely an ndarray: its dimensions, its dtype, and who holds its memory."""

from __future__ import annotations

import textwrap

import libcst as cst
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlint.semantic.script import Script
from torchlint.semantic.values.arrays import Array
from torchlint.source import Source

HEAD = """
import cv2
import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split
rng = np.random.default_rng(0)
frame = pd.read_csv("x.csv")
matrix = np.zeros((4, 3), dtype=np.float32)
"""


def _array(lines: str) -> Array | None:
    script = Script.parse(Source("train.py", HEAD + textwrap.dedent(lines)))
    last = script.tree.all(cst.Expr)[-1]
    return script.values.arrays.array(last.value)


@pytest.mark.parametrize(
    ("code", "rank", "dtype", "fresh"),
    [
        ("np.zeros((2, 3))", 2, "float64", True),
        ("np.ones(4, np.int64)", 1, "int64", True),
        ("matrix", 2, "float32", False),
        ("matrix[0]", 1, "float32", False),
        ("matrix[1:3]", 2, "float32", False),
        ("matrix[:, 0]", 1, "float32", False),
        ("matrix / 255.0", 2, "float32", True),
        ("-matrix", 2, "float32", True),
        ("matrix.T", 2, "float32", False),
        ("matrix.astype('float64')", 2, "float64", True),
        ("matrix.astype('float32', copy=False)", 2, "float32", False),
        ("matrix.sum(axis=0)", 1, "", True),
        ("matrix.flatten()", 1, "float32", True),
        ("np.array(matrix)", 2, "float32", True),
        ("np.asarray(matrix)", 2, "float32", False),
        ("np.arange(3)", 1, "", True),
        ("np.random.rand(2, 3)", 2, "float64", True),
        ("rng.normal(size=(2, 3))", 2, "float64", True),
        ("matrix if rng else matrix", 2, "float32", False),
    ],
)
def test_rank_dtype_and_memory(code: str, rank: int, dtype: str, fresh: bool) -> None:
    found = _array(f"{code}\n")
    assert found is not None
    assert (found.rank, found.dtype, found.fresh, found.sure) == (rank, dtype, fresh, True)


@pytest.mark.parametrize(
    "code",
    [
        "matrix[0, 0]",
        "matrix[0][1]",
        "matrix.sum()",
        "matrix * torch.zeros(3)",
        "np.random.rand()",
        "rng.normal()",
        "np.asarray(unknown)",
        "torch.zeros(3)",
        "[1, 2]",
        "unknown.values",
        "unknown[0]",
    ],
)
def test_numbers_tensors_and_the_unknown_are_no_arrays(code: str) -> None:
    assert _array(f"{code}\n") is None


@pytest.mark.parametrize(
    "code",
    ["frame.values", "frame[['a']].values", "frame.iloc[0].values", "unknown.to_numpy()",
     "cv2.imread('a.png')", "torch.zeros(3).numpy()"],
)  # fmt: skip
def test_arrays_of_other_libraries(code: str) -> None:
    assert _array(f"{code}\n") is not None


def test_an_index_into_an_array_of_unknown_rank_may_give_a_number() -> None:
    found = _array("x = np.load('x.npy')\nx[0]\n")
    assert found is not None
    assert not found.sure


def test_picking_with_an_array_copies() -> None:
    found = _array("rows = rng.integers(0, 4, size=2)\nmatrix[rows]\n")
    assert found is not None
    assert found.fresh


@pytest.mark.parametrize(
    "code",
    [
        "np.load('x.npy', mmap_mode='r')",
        "np.memmap('x', mode='r')",
        "np.broadcast_to(matrix, (2, 4, 3))",
    ],
)
def test_read_only_memory(code: str) -> None:
    found = _array(f"{code}\n")
    assert found is not None
    assert found.frozen
    assert not found.fresh


def test_through_functions_splits_and_attributes() -> None:
    assert _array("def f():\n    return matrix, 1\na, b = f()\na\n") == Array(2, 2, "float32")
    assert _array("a, b = train_test_split(matrix)\na\n") == Array(2, 2, "float32")
    lines = """
    class Rows:
        def __init__(self):
            self.x = np.zeros((4, 3))
            self.x += 1
        def __getitem__(self, i):
            self.x[i]
    """
    assert _array(lines) == Array(1, 1, "float64")


def test_an_annotation_is_believed() -> None:
    assert _array("def f(a: np.ndarray):\n    a\n") == Array()
    assert _array("def f(a):\n    a\n") is None


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.lists(st.sampled_from([":", "0", "0:1"]), min_size=1, max_size=3),
)
def test_indexing_agrees_with_numpy(shape: list[int], indices: list[str]) -> None:
    indices = indices[: len(shape)]
    code = f"np.zeros(({', '.join(map(str, shape))},))[{', '.join(indices)}]"
    real = eval(code, {"np": np})
    found = _array(f"{code}\n")
    assert (found is not None) is isinstance(real, np.ndarray)
    assert found is None or found.rank == real.ndim
