"""Parameters: whether a network has some, and whether it starts with trained ones."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.syntax.methods import named_arguments

_PRETRAINED: Final = re.compile(
    r".*\.from_pretrained|torch\.(?:(?:hub|jit)\.)?load|clip\.load|open_clip\.create_model\w*"
)
_MODELS: Final = re.compile(r"torchvision\.models\.(?:\w+\.)*\w+|timm\.(?:models\.)?create_model")
_LAYERS: Final = re.compile(
    r"torch\.nn\.(?:Linear|Bilinear|(?:Lazy)?Conv\w+|Embedding|EmbeddingBag|LSTM|GRU|RNN|Parameter"
    r"|MultiheadAttention|Transformer\w*)"
)


class Parameters(Analysis):
    """Finds the parameters that the call which makes a network gives it."""

    def is_pretrained(self, root: object) -> bool:
        """Return whether what makes a network loads trained parameters into it."""
        if not isinstance(root, cst.Call):
            return False
        name = self.names.name(root.func) or dotted(root.func)
        if _PRETRAINED.fullmatch(name):
            return True
        return _MODELS.fullmatch(name) is not None and any(
            self.tree.code(each) not in ("False", "None")
            for each in named_arguments(root, "pretrained", "weights")
        )

    def are_seen(self, root: object) -> bool:
        """Return whether what makes a network is known to give it parameters."""
        if not isinstance(root, cst.Call):
            return False
        name = self.names.name(root.func) or ""
        if _is_layer(name):
            return True
        if name == "torch.nn.Sequential":
            inside = (each for each in self.tree.within(root, cst.Call) if each is not root)
            return any(map(self.are_seen, inside))
        owner = self.functions.instance_of(root)
        return owner is not None and any(
            _is_layer(self.names.name(made.func) or "")
            for each in self.functions.lineage(owner)
            for made in self.tree.within(each, cst.Call)
        )


def _is_layer(name: str) -> bool:
    """Return whether a name is that of a layer with parameters, or of a library's network."""
    return _LAYERS.fullmatch(name) is not None or _MODELS.fullmatch(name) is not None
