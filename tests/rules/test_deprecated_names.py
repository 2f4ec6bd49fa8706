"""Every name of torch that TL806 knows, run before the fix, and after it.

The names of Transformers are left out: no installed version has them any more.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

import pytest

from torchlint.config import Settings
from torchlint.engine import FixResult, check_source, fix_source
from torchlint.registry import load_registry
from torchlint.source import Source
from torchlint_rules.tl806_deprecated_api.deprecations import LOSSES, NAMES, NEEDED, OVERLOADS

torch = pytest.importorskip("torch")

SETTINGS = Settings(select=("TL806",), unsafe_fixes=True)
RULES = load_registry().select(SETTINGS)
HEAD: Final = """\
import functorch
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
x, y = torch.rand(2, 3), torch.rand(2, 3)
square, image = torch.eye(3) + 0.1, torch.rand(1, 1, 4, 4)
layer = nn.Linear(3, 3)
"""
_QUANTIZED: Final = "nn.Sequential(nn.Linear(3, 3))"
CALLS: Final = {
    "torch.nn.init.uniform": "(torch.empty(3, 3))",
    "torch.nn.init.normal": "(torch.empty(3, 3))",
    "torch.nn.init.constant": "(torch.empty(3, 3), 0.5)",
    "torch.nn.init.dirac": "(torch.empty(3, 3, 3))",
    "torch.nn.init.sparse": "(torch.empty(3, 3), sparsity=0.1)",
    "functorch.vmap": "(torch.sin)(x)",
    "functorch.grad": "(torch.sum)(x)",
    "functorch.grad_and_value": "(torch.sum)(x)[0]",
    "functorch.vjp": "(torch.sin, x)[0]",
    "functorch.jvp": "(torch.sin, (x,), (y,))[1]",
    "functorch.jacrev": "(torch.sin)(x)",
    "functorch.jacfwd": "(torch.sin)(x)",
    "functorch.hessian": "(torch.sum)(x)",
    "functorch.functionalize": "(torch.sin)(x)",
    "functorch.make_functional": "(layer)",
    "functorch.make_functional_with_buffers": "(layer)",
    "functorch.combine_state_for_ensemble": "([layer])",
    "torch.nn.utils.stateless.functional_call": "(layer, {'bias': torch.ones(3)}, (x,))",
    "torch.nn.NLLLoss2d": "()(image.expand(1, 3, 4, 4), image[0].long())",
    "torch.nn.functional.upsample": "(image, None, 2.0, 'bilinear', False)",
    "torch.nn.functional.upsample_nearest": "(image, (8, 8))",
    "torch.nn.functional.upsample_bilinear": "(image, scale_factor=2,)",
    "torch.cholesky": "(square @ square.T)",
    "torch.qr": "(square)[1]",
    "torch.nn.utils.weight_norm": "(layer)(x)",
    "torch.chain_matmul": "(x, square)",
    "torch.range": "(0, 3)",
    "torch.testing.assert_allclose": "(x, x)",
    "torch.set_default_tensor_type": "(torch.FloatTensor)",
    "torch.backends.cuda.sdp_kernel": "(enable_math=True).__enter__()",
    "torch.meshgrid": "(x[0], y[0])[0]",
    "torch.nn.functional.softmax": "(x)",
    "torch.nn.functional.log_softmax": "(x)",
    "torch.nn.functional.softmin": "(x)",
    "torch.nn.Softmax": "()(x)",
    "torch.nn.LogSoftmax": "()(x)",
    "torch.nn.Softmin": "()(x)",
    "torch.cross": "(x, y)",
}
"""How each function is called; the others take a square tensor, or nothing."""
METHODS: Final = {
    "add_": "x.add_(0.5, y)",
    "sub_": "x.sub_(0.5, y)",
    "addcmul": "x.addcmul(0.5, y, y)",
    "addcmul_": "x.addcmul_(0.5, y, y)",
    "addcdiv": "x.addcdiv(-0.5, y, y + 1.0)",
    "addcdiv_": "x.addcdiv_(-0.5, y, (y + 1.0))",
}
_SIGN: Final = {
    "CosineEmbeddingLoss": "(x, y, torch.ones(2))",
    "MarginRankingLoss": "(x, y, torch.ones(2, 3))",
    "TripletMarginLoss": "(x, y, y + 1.0)",
    "CrossEntropyLoss": "(x, torch.tensor([0, 1]))",
    "NLLLoss": "(x, torch.tensor([0, 1]))",
    "MultiMarginLoss": "(x, torch.tensor([0, 1]))",
    "MultiLabelMarginLoss": "(x, torch.zeros(2, 3).long())",
}


def _call(name: str) -> str:
    if "quantization" in name:
        given = f"{_QUANTIZED}.train()" if name.endswith("qat") else _QUANTIZED
        more = ", print, ()" if name.endswith(("quantize", "quantize_qat")) else ""
        return f"({given}{more})"
    if name.startswith("torch.cuda."):
        return "()"
    return CALLS.get(name, "(torch.empty(3, 3))")


def _given(name: str) -> str:
    """Return tensors that a loss takes."""
    word = name.rpartition(".")[2].lower().replace("_", "").removesuffix("loss")
    for loss, given in _SIGN.items():
        if loss.removesuffix("Loss").lower() == word:
            return given
    return "(x, y)"


def _ran(text: str) -> tuple[Any, list[str]]:
    """Run a script and return its result, and what it warned of deprecated things."""
    spoken = ("deprecat", "renamed", "now calls", "required to pass the indexing")
    names: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            exec(text, names)
        except (AttributeError, RuntimeError) as error:
            if "cuda" not in str(error):
                raise
        finally:
            torch.set_warn_always(False)
    told = [str(each.message) for each in caught]
    return names.get("result"), [
        text for text in told if any(word in text for word in spoken) and "torch.jit" not in text
    ]


def _fixed(expression: str) -> tuple[str, FixResult]:
    text = f"{HEAD}result = {expression}\n"
    return text, fix_source(Source("train.py", text), RULES, SETTINGS)


def _agrees(expression: str) -> None:
    """Check that a call warns, that it is found, and that its fix warns no more and is equal."""
    text, result = _fixed(expression)
    old, told = _ran(text)
    assert told
    if result.after.text == text:
        found = check_source(result.after, RULES, SETTINGS).findings
        assert [each.code for each in found] == ["TL806"]
        return
    new, told = _ran(result.after.text)
    assert not told
    if isinstance(old, torch.Tensor):
        assert torch.equal(old, new)
    else:
        assert old == new


@pytest.mark.parametrize(
    "name", [name for name in (*NAMES, *NEEDED) if not name.startswith("transformers.")]
)
def test_a_name_warns_and_what_replaces_it_is_equal(name: str) -> None:
    _agrees(name + _call(name))


@pytest.mark.parametrize("flags", ["size_average=False", "reduce=False", "size_average=True"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_flag_of_a_loss_is_a_word_for_its_reduction(name: str, flags: str) -> None:
    given = _given(name)
    made = name.rpartition(".")[2][0].isupper()
    _agrees(f"{name}({flags}){given}" if made else f"{name}{given[:-1]}, {flags})")


@pytest.mark.parametrize("method", OVERLOADS)
def test_a_factor_before_the_tensors(method: str) -> None:
    _agrees(METHODS[method])


def test_memory_is_pinned_for_the_device_in_use() -> None:
    text = (
        "from torch.utils.data import DataLoader\n"
        'loader = DataLoader([1, 2], pin_memory=True, pin_memory_device="cuda")\n'
        "result = [each.tolist() for each in loader]\n"
    )
    fixed = fix_source(Source("train.py", text), RULES, SETTINGS).after.text
    assert "pin_memory_device" not in fixed
    old, told = _ran(text)
    assert told
    assert _ran(fixed) == (old, [])


def test_an_import_by_name_follows() -> None:
    text = (
        "from torch import nn\n"
        "from torch.nn.utils import weight_norm\n"
        "layer = weight_norm(nn.Linear(8, 8))\n"
    )
    fixed = fix_source(Source("train.py", text), RULES, SETTINGS).after.text
    assert fixed == text.replace("nn.utils import", "nn.utils.parametrizations import")
