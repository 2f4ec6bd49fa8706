"""Names: qualified names through aliases, rebinding and star imports."""

from __future__ import annotations

import builtins
import re
from functools import cache, cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.scope.libraries import Factory, factory
from torchlint.semantic.scope.links import Links
from torchlint.semantic.scope.memo import Memo, Trail
from torchlint.semantic.scope.scopes import Binding, How, Scope, Scopes, dotted
from torchlint.semantic.scope.words import words

_BUILTINS: Final = frozenset(dir(builtins))
_ASSIGN: Final = How.ASSIGN
_IMPORT: Final = How.IMPORT

_SYNONYMS: Final = {
    "torch.autocast": "torch.amp.autocast",
    "torch.amp.autocast_mode.autocast": "torch.amp.autocast",
    "torch.GradScaler": "torch.amp.GradScaler",
    "torch.amp.grad_scaler.GradScaler": "torch.amp.GradScaler",
    "torch.cuda.amp.autocast_mode.autocast": "torch.cuda.amp.autocast",
    "torch.cuda.amp.grad_scaler.GradScaler": "torch.cuda.amp.GradScaler",
    "torch.cpu.amp.autocast_mode.autocast": "torch.cpu.amp.autocast",
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel": (
        "torch.nn.parallel.DistributedDataParallel"
    ),
    "torch.utils.data.distributed.DistributedSampler": "torch.utils.data.DistributedSampler",
    "torchdata.stateful_dataloader.StatefulDataLoader": "torch.utils.data.DataLoader",  # and more
    "torch.autograd.no_grad": "torch.no_grad",
    "torch.autograd.grad_mode.no_grad": "torch.no_grad",
    "torch.autograd.inference_mode": "torch.inference_mode",
    "torch.autograd.grad_mode.inference_mode": "torch.inference_mode",
    "torch.autograd.enable_grad": "torch.enable_grad",
    "torch.autograd.grad_mode.enable_grad": "torch.enable_grad",
    "torch.autograd.set_grad_enabled": "torch.set_grad_enabled",
    "torch.autograd.grad_mode.set_grad_enabled": "torch.set_grad_enabled",
    "torch.autograd.variable.Variable": "torch.autograd.Variable",
    "torch.autograd.anomaly_mode.detect_anomaly": "torch.autograd.detect_anomaly",
    "torch.autograd.anomaly_mode.set_detect_anomaly": "torch.autograd.set_detect_anomaly",
}
_PATTERNS: Final = (
    (
        re.compile(r"torch\.utils\.data\.(?:dataloader|dataset|sampler)\.(?=[A-Za-z])"),
        "torch.utils.data.",
    ),
    (re.compile(r"torch\.optim\.(?!lr_scheduler\b|swa_utils\b)[a-z_]+\.(?=[A-Z])"), "torch.optim."),
    (re.compile(r"torch\.nn\.modules\.(?:[a-z_0-9]+\.)?(?=[A-Z])"), "torch.nn."),
    (re.compile(r"torch\.nn\.utils\.(?:clip_grad|rnn)\.(?=clip|get_total)"), "torch.nn.utils."),
)
_STAR: Final = {
    "torch": frozenset(
        "tensor as_tensor from_numpy no_grad inference_mode set_grad_enabled enable_grad "
        "device zeros ones stack cat save load Tensor FloatTensor nn optim cuda autocast "
        "GradScaler".split()
    ),
    "torch.utils.data": frozenset(
        "DataLoader Dataset IterableDataset TensorDataset Subset ConcatDataset random_split "
        "Sampler RandomSampler SequentialSampler BatchSampler DistributedSampler "
        "WeightedRandomSampler SubsetRandomSampler".split()
    ),
    "torch.optim": frozenset(
        "Adam AdamW SGD RMSprop Adagrad Adadelta Adamax NAdam RAdam LBFGS SparseAdam ASGD "
        "Rprop Optimizer lr_scheduler".split()
    ),
    "torch.optim.lr_scheduler": frozenset(
        "StepLR MultiStepLR ExponentialLR CosineAnnealingLR ReduceLROnPlateau OneCycleLR "
        "LambdaLR CyclicLR CosineAnnealingWarmRestarts LinearLR".split()
    ),
    "torch.cuda.amp": frozenset("autocast GradScaler custom_fwd custom_bwd".split()),
    "torch.autograd": frozenset(
        "Variable Function grad backward no_grad enable_grad set_grad_enabled detect_anomaly "
        "set_detect_anomaly".split()
    ),
}
_STAR_CLASSES: Final = re.compile(
    r"Module|ModuleList|ModuleDict|Sequential|Parameter|Linear|Bilinear|Identity|Flatten|"
    r"(?:Lazy)?Conv(?:Transpose)?[123]d|(?:Lazy)?BatchNorm[123]d|SyncBatchNorm|LayerNorm|GroupNorm|"
    r"InstanceNorm[123]d|(?:Alpha)?Dropout[123]?d?|Embedding|RNN|LSTM|GRU|(?:RNN|LSTM|GRU)Cell|"
    r"(?:Adaptive)?(?:Max|Avg)Pool[123]d|[A-Z]\w*Loss|ReLU|LeakyReLU|Sigmoid|Tanh|Softmax|GELU|"
    r"DataParallel|MultiheadAttention|Transformer\w*|functional|init|utils"
)
_CUSTOMARY: Final = {
    "torch": "torch",
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "optim": "torch.optim",
    "np": "numpy",
    "tqdm": "tqdm.tqdm",
}
"""The usual meaning of names that `from utils import *` may bind."""


@cache
def canonical(name: str) -> str:
    """Return the one name used for an object that torch exports under several names."""
    found = _SYNONYMS.get(name)
    if found is not None:
        return found
    for pattern, short in _PATTERNS:
        if pattern.match(name):
            return pattern.sub(short, name, count=1)
    return name


class Names:
    """Finds the qualified names of expressions."""

    def __init__(self, scopes: Scopes, links: Links | None = None) -> None:
        self.scopes = scopes
        self.links = links
        self.trail = Trail()
        self.name = Memo[cst.CSTNode, "str | None"](None, self.trail, self._name).answer
        """Return the canonical qualified name, None if there is none or more than one.

        Functions and classes in view have no qualified name. The name of what the project defines
        out of view begins with a dot.
        """
        self._joints = Memo[int, "str | None"](None, self.trail, self._joint_of)
        self._asked: dict[int, tuple[Binding, ...]] = {}
        """The bindings that reach names, keyed by identity."""

    def marks(self, definition: cst.FunctionDef | cst.ClassDef) -> list[str]:
        """Return the qualified names of the decorators of a function or class, "" for unknown."""
        marks = (each.decorator for each in definition.decorators)
        return [self.name(m.func if type(m) is cst.Call else m) or "" for m in marks]

    def factory(self, call: cst.Call) -> Factory | None:
        """Return the function of torch by which a call creates a tensor."""
        return factory(self.name(call.func))

    def is_empty(self, node: cst.CSTNode | None) -> bool:
        """Return whether a value is a new list or dictionary without entries: `[]`, `dict()`."""
        if isinstance(node, (cst.List, cst.Dict)):
            return not node.elements
        made = self.name(node.func) if isinstance(node, cst.Call) and not node.args else None
        return made in ("builtins.list", "builtins.dict")

    def is_partial(self, call: cst.Call) -> bool:
        """Return whether a call makes an object of `functools.partial`."""
        return self.name(call.func) == "functools.partial"

    @staticmethod
    def words(text: str) -> list[str]:
        """Split identifiers in any style into lower-case words."""
        return list(words(text))

    def spelled(self, text: str, place: cst.CSTNode) -> str | None:
        """Return the qualified name of a dotted string in the module of a node, at its top level.

        Quoted annotations are such strings.
        """
        head, _, rest = text.partition(".")
        bindings = tuple(self.scopes.module_scope(place).bindings.get(head, ()))
        found = self._joint(bindings) if bindings else self._unbound(head, place)
        return canonical(f"{found}.{rest}" if rest else found) if found is not None else None

    def _name(self, node: cst.CSTNode) -> str | None:
        if type(node) is cst.Name:
            word = node.value
            if word not in self._named and word not in _BUILTINS and not self.scopes.star_imports:
                if self.links is None or self.scopes.tree.is_own(node):
                    return None
            bindings = self.scopes.reaching(node)
            if not bindings:
                found = self._unbound(word, node)
            else:
                self._asked[id(bindings)] = bindings
                found = self._joints.answer(id(bindings))
        elif type(node) is cst.Attribute:
            base = self.name(node.value)
            found = f"{base}.{node.attr.value}" if base is not None else self._name_of_own(node)
            if found is not None and self.links is not None:
                found = self.links.name(node, found)
        else:
            return None
        return canonical(found) if found is not None else None

    def linked(self, node: cst.Attribute) -> tuple[Binding, ...]:
        """Return the bindings of an attribute of an imported module that is in view."""
        if self.links is None or node.attr.value not in self.links.words:
            return ()
        base = self.name(node.value)
        return self.links.named(node, f"{base}.{node.attr.value}") if base is not None else ()

    def _name_of_own(self, node: cst.Attribute) -> str | None:
        path = dotted(node)
        if not path.startswith("self."):
            return None
        own = self._own(node).bindings
        bindings = (*own.get(path, ()), *own.get(node.attr.value, ()))
        return self._joint(bindings) if bindings else None

    @cached_property
    def _named(self) -> frozenset[str]:
        """The names bound by an import, or assigned the value of another name."""
        return frozenset(
            binding.name
            for binding in self.scopes.bindings()
            if binding.how is _IMPORT
            or (binding.how is _ASSIGN and type(binding.value) in (cst.Name, cst.Attribute))
        )

    def _own(self, node: cst.CSTNode) -> Scope:
        owner = self.scopes.class_of(node)
        return self.scopes.scope_at(owner) if owner is not None else self.scopes.module_scope(node)

    def _joint_of(self, key: int) -> str | None:
        return self._joint(self._asked[key])

    def _joint(self, bindings: tuple[Binding, ...]) -> str | None:
        found: set[str] = set()
        for binding in bindings:
            value = binding.value
            if type(value) is cst.Name and value.value == "None" and binding.how is _ASSIGN:
                continue
            name = self._bound(binding)
            if name is None:
                return None
            found.add(canonical(name))
        return found.pop() if len(found) == 1 else None

    def _bound(self, binding: Binding) -> str | None:
        if binding.how is _IMPORT:
            return binding.qualified
        value = binding.value
        if binding.how is _ASSIGN and isinstance(value, (cst.Name, cst.Attribute)):
            return self.name(value)
        return None

    def _unbound(self, name: str, place: cst.CSTNode) -> str | None:
        stars = self.scopes.stars(place) if self.scopes.star_imports else ()
        for module in reversed(stars):
            if name in _STAR.get(module, ()):
                return f"{module}.{name}"
            if module in ("torch.nn", "torch.nn.modules") and _STAR_CLASSES.fullmatch(name):
                return f"torch.nn.{name}"
        if name in _BUILTINS:
            return f"builtins.{name}"
        if stars and name in _CUSTOMARY:
            return _CUSTOMARY[name]
        # What a linked module defines without being in view.
        return None if self.scopes.tree.is_own(place) else f".{name}"
