"""Detecting whether a file imports torch, or a library that is built on torch.

The word in a comment, a string or the name of another package (`mytorch`) does not count.
"""

from __future__ import annotations

import ast
from enum import Enum
from typing import Final

from torchlint.program.outline import imports_in
from torchlint.semantic.view import View

TORCH: Final = "torch"
_FRAMEWORKS: Final = frozenset(
    "accelerate allennlp apex avalanche bitsandbytes botorch catalyst clip composer deepspeed "
    "detectron2 dgl diffusers effdet espnet2 fairscale fairseq fairseq2 fastai flair "
    "flash_attn gpytorch ignite kornia lightning lightning_fabric lightning_utilities "
    "mmcls mmcv mmdet mmengine mmpose mmpretrain mmseg monai nemo open_clip peft "
    "pl_bolts poutyne pyro pytorch3d segment_anything sentence_transformers skorch "
    "speechbrain stable_baselines3 tianshou timm transformers trl ultralytics vllm xformers".split()
)
"""Packages built on torch whose names do not show it."""
_OF_TORCH: Final = "torch", "pytorch_"
"""The prefixes of most packages that are built on torch: torchvision, pytorch_lightning."""
_SUFFIX: Final = "_pytorch"


class TorchImport(Enum):
    """How a file imports torch."""

    IMPORTED = "it imports torch, or a library that is built on it"
    THROUGH_STAR = "its torch can only come through a star import of another module"
    NONE = "it does not import torch"


def torch_import(tree: ast.Module) -> TorchImport:
    """Return how a file imports torch."""
    stars = False
    for node in imports_in(tree.body):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.Import):
            found = any(map(_is_torch, names))
        else:
            found = TORCH in names or _is_torch(node.module or "")
            stars = stars or "*" in names
        if found:
            return TorchImport.IMPORTED
    if any(map(_imports_by_name, ast.walk(tree))):
        return TorchImport.IMPORTED
    if stars and any(map(_is_word_torch, ast.walk(tree))) and not _binds_torch(tree):
        return TorchImport.THROUGH_STAR
    return TorchImport.NONE


def imports_torch(view: View) -> bool:
    """Return whether the definitions of other modules come with an import of torch."""
    return any(
        _text_imports_torch(excerpt.text) for module in view.modules for excerpt in module.excerpts
    )


def _text_imports_torch(text: str) -> bool:
    if "import" not in text:
        return False
    try:
        return torch_import(ast.parse(text)) is TorchImport.IMPORTED
    except SyntaxError:
        return False


def _is_torch(module: str) -> bool:
    """Return whether a module is torch, is built on torch, or is another library's torch part."""
    parts = module.split(".")
    first = parts[0]
    return (
        first in _FRAMEWORKS
        or first.startswith(_OF_TORCH)
        or first.endswith(_SUFFIX)
        or TORCH in parts
    )


def _imports_by_name(node: ast.AST) -> bool:
    """Return whether a node is `import_module("torch")`, `importorskip("torch")` or the like."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    first, called = node.args[0], node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return (
        "import" in name
        and isinstance(first, ast.Constant)
        and isinstance(first.value, str)
        and _is_torch(first.value)
    )


def _is_word_torch(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == TORCH


def _binds_torch(tree: ast.Module) -> bool:
    """Return whether the name `torch` is bound to something else: `import mytorch as torch`."""
    return any(
        alias.asname == TORCH for node in imports_in(tree.body) for alias in node.names
    ) or any(
        isinstance(node, ast.Name) and node.id == TORCH and isinstance(node.ctx, ast.Store)
        for node in ast.walk(tree)
    )
