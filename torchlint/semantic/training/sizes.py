"""Sizes: whether a network is so tiny that neither its kernels nor its optimizer matter."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.calls.functions import Definition
from torchlint.semantic.training.networks import Networks, Root, Roots
from torchlint.semantic.training.widths import Widths
from torchlint.semantic.values.kind import Kind, is_module_class
from torchlint.semantic.values.known import KnownValues, ValueAnalysis

_MOST: Final = 300_000
"""Weights of a tiny network: a digit's 784 pixels and two layers of 256 have fewer."""
_MOST_OF_ROWS: Final = 1_000_000
"""The same for dense layers alone, which mostly get one row for each sample."""
_MOST_OF_MAPS: Final = 2_000_000
"""The same for convolutions of small images, and the dense layers that read their maps."""
_MOST_OF_IMAGES: Final = 25_000_000
"""The same for dense layers that read or make whole images: one product for each layer."""
_MOST_UPDATED: Final = 200_000
"""The same for an optimizer, which launches kernels for each tensor whatever their size."""
_UNKNOWN: Final = 1 << 60
"""The weights of layers that code does not show."""
_FILTERS: Final = 64
"""The most channels of convolutions that small images need."""
_WIDE: Final = 256
"""An unknown width beside a known one of at most this is taken to be as wide."""
_NARROW: Final = 64
"""The most that a call names as a width of a tiny network that is out of view."""
_WIDTHS: Final = re.compile(
    r"d_?model|(?:d|dim|n|num)_?(?:hid|hidden|embed|emb)|"
    r"(?:hid|hidden|embed|embedding|emb|mlp|layer)_?(?:dims?|sizes?|units|widths?|layers_sizes)?s?"
)
_OF_IMAGES: Final = re.compile("conv|cnn|unet|resnet|image|img|patch|channel|resolution|vocab")
_REPEATED: Final = 4
"""How often a layer in a loop is taken to be made."""
_GATES: Final = {
    "Linear": ("in_features", "out_features", 1), "LSTM": ("input_size", "hidden_size", 4),
    "GRU": ("input_size", "hidden_size", 3), "RNN": ("input_size", "hidden_size", 1),
    "LSTMCell": ("input_size", "hidden_size", 4), "GRUCell": ("input_size", "hidden_size", 3),
    "RNNCell": ("input_size", "hidden_size", 1),
    "Embedding": ("num_embeddings", "embedding_dim", 1),
    "MultiheadAttention": ("embed_dim", "embed_dim", 4),
}  # fmt: skip
"""Layers of matrices: the arguments with their widths, and how many matrices they have."""
_SIDES: Final = ("in_features", "out_features")
_TABLE: Final = "torch.nn.Embedding"
_HEAVY: Final = re.compile(
    r"torch\.nn\.(?:Lazy\w+|Conv\w+|Transformer\w*|MultiheadAttention|Bilinear|EmbeddingBag)"
)
_CONVOLUTION: Final = re.compile(r"torch\.nn\.Conv(?:Transpose)?([123])d")
_LIGHT: Final = re.compile(
    r"(?:torch|builtins|math|numpy|collections|typing|functools|librosa|"
    r"(?:torchaudio|torchvision)\.(?:transforms|functional))\.\w.*"
)
_NORMS: Final = re.compile(r"torch\.nn\.(?:\w*Norm\w*|PReLU)")
_MIXING: Final = re.compile(
    r"torch\.(?:nn\.functional\.)?(?:softmax|scaled_dot_product_attention|b?mm|matmul|einsum)"
)
"""What works over the parts of a sequence: each dense layer then has many rows for an image."""
_CONTAINERS: Final = ("torch.nn.Sequential", "torch.nn.ModuleList")
_SHAPED: Final = re.compile(r"torch\.(?:\w*Tensor|empty|zeros|ones|randn?)")
_RANGE: Final = "builtins.range"


class _Layers(NamedTuple):
    """The layers of a network: what its convolutions make, and the widths of its dense layers.

    `others`: layers and products that work over sequences, and calls that may make any layer.
    """

    channels: list[int]
    sides: list[cst.Arg]
    others: list[cst.CSTNode]


class Sizes(ValueAnalysis):
    """Counts the weights of networks whose layers are all in view, with their widths."""

    def __init__(self, values: KnownValues, widths: Widths, networks: Networks) -> None:
        super().__init__(values)
        self.widths = widths
        self.networks = networks

    def are_tiny(self, *networks: cst.BaseExpression) -> bool:
        """Return whether each of some networks has few weights, for the layers that it has."""
        roots: Roots = frozenset().union(*map(self.networks.roots, networks))
        learned = list(filter(self._weights, roots))
        return bool(learned) and all(map(self._is_tiny, learned))

    def _is_tiny(self, root: Root) -> bool:
        layers = self._layers(root)
        widths = [self.widths.number(each.value) for each in layers.sides]
        # Nothing is multiplied by a table, but by a layer as wide as there are words.
        weights = self._weights(root, tables=None in widths)
        if layers.channels:
            small = max(filter(None, widths), default=0) > max(layers.channels) <= _FILTERS
            return small and weights <= (_MOST if layers.others else _MOST_OF_MAPS)
        if layers.others or not widths:
            return weights <= _MOST
        images = any(self.widths.is_flattened(each.value) for each in layers.sides)
        return weights <= (_MOST_OF_IMAGES if images else _MOST_OF_ROWS)

    def are_convolutional(self, *networks: cst.BaseExpression) -> bool:
        """Return whether networks that are all in view do most of their work in convolutions."""
        roots: Roots = frozenset().union(*map(self.networks.roots, networks))
        learned = list(filter(self._weights, roots))
        layers = list(map(self._layers, learned))
        if not all(map(self._makers, learned)) or any(each.others for each in layers):
            return False
        return sum(2 * len(each.channels) - len(each.sides) for each in layers) > 0

    def _layers(self, root: Root) -> _Layers:
        layers = _Layers([], [], [])
        for region in self.regions(root):
            layers.others.extend(self.tree.within(region, cst.MatrixMultiply))
            for call in self.tree.within(region, cst.Call):
                name = self.names.name(call.func) or ""
                if _CONVOLUTION.fullmatch(name):
                    layers.channels.append(self._width(call, "out_channels", 1) or 0)
                elif name == "torch.nn.Linear":
                    sides = map(self.values.argument_node, (call, call), _SIDES, (0, 1))
                    layers.sides.extend(filter(None, sides))
                elif not self._is_between(call, name):
                    layers.others.append(call)
        return layers

    def updates_tiny(self, optimizer: cst.Call) -> bool:
        """Return whether all networks whose parameters an optimizer holds are tiny together."""
        return 0 < sum(map(self._weights, self.networks.held(optimizer))) <= _MOST_UPDATED

    def is_weightless(self, network: cst.BaseExpression) -> bool:
        """Return whether a network is a class in view that has no weights to record graphs of."""
        roots = self.networks.roots(network)
        return bool(roots) and all(
            all(map(self._is_made_here, self._makers(root))) and not self._weights(root)
            for root in roots
        )

    def _is_made_here(self, maker: cst.Call | cst.ClassDef) -> bool:
        """Return whether no layers come from a class or a function of a library or an heir."""
        if isinstance(maker, cst.ClassDef) and self.functions.is_base(maker):
            return False
        made = self.functions.definition(maker.func) if isinstance(maker, cst.Call) else maker
        if isinstance(made, cst.ClassDef):
            bases = self.functions.bases(made)
            return all(base.startswith("torch.") or not is_module_class(base) for base in bases)
        name = self.names.name(maker.func) if isinstance(maker, cst.Call) else None
        return made is not None or (name or "").startswith("torch.nn.")

    def _is_between(self, call: cst.Call, name: str) -> bool:
        """Return whether a call may stand between dense layers that get one row for an image."""
        if _MIXING.fullmatch(name):
            return False
        if name == _TABLE and 0 < (self._width(call, "num_embeddings", 0) or 0) <= _NARROW:
            return True  # a table of classes, not of the words of a text
        return bool(_NORMS.fullmatch(name)) or not self._weights_of(call)

    @cached_method
    def _weights(self, root: Root, *, tables: bool = True) -> int:
        """Return the weights of a network, more than a tiny one has if some are unknown."""
        total = 0 if self._makers(root) else _UNKNOWN
        for region in self.regions(root):
            for call in self.tree.within(region, cst.Call):
                if isinstance(region, cst.Call) and self._is_filled_elsewhere(call):
                    return _UNKNOWN
                if tables or self.names.name(call.func) != _TABLE:
                    if weights := self._weights_of(call):
                        total += weights * self._times(call, region)
        made = root if total >= _UNKNOWN and isinstance(root, cst.Call) else None
        return _MOST_UPDATED if made is not None and self._is_narrow(made) else total

    def _is_narrow(self, network: cst.Call) -> bool:
        """Return whether the call that makes a network names its widths, and all are small."""
        if any(_OF_IMAGES.search(word.lower()) for word in self.tree.words(network)):
            return False
        widths = [
            arg.value
            for arg in network.args
            if arg.keyword is not None and _WIDTHS.fullmatch(arg.keyword.value)
        ]
        return bool(widths) and all(map(self._is_small, widths))

    def _is_small(self, width: cst.BaseExpression) -> bool:
        """Return whether a width is small, or each of those of dense layers."""
        if isinstance(width, (cst.List, cst.Tuple)):
            return all((self.widths.number(e.value) or _WIDE) < _WIDE for e in width.elements)
        return 0 < (self.widths.number(width) or 0) <= _NARROW

    def regions(self, root: Root) -> list[cst.CSTNode]:
        """Return the code that makes a network: a call, and the definitions that it runs."""
        found: list[cst.CSTNode] = [*self._makers(root)]
        for region in found:
            inside: list[cst.CSTNode] = [*self._definitions(region)]
            if isinstance(region, cst.Call):
                inside += self._parts(region)
                if isinstance(self.functions.definition(region.func), cst.FunctionDef):
                    inside += self.functions.callees(region)
            found += (each for each in inside if each not in found)
        return found

    def _makers(self, root: Root) -> list[cst.Call | cst.ClassDef]:
        """Return the calls that make a network, or its class; none if one of them is unknown."""
        match root:
            case (cst.Call() as call, int() as index):
                roots = self.networks.members(call, (index,))
            case _:
                roots = frozenset({root})
        known = [each for each in roots if isinstance(each, (cst.Call, cst.ClassDef))]
        return known if len(known) == len(roots) else []

    def _parts(self, container: cst.Call) -> Iterator[cst.CSTNode]:
        """Yield what makes the networks that another one gets by their names."""
        contains = self.names.name(container.func) in _CONTAINERS
        for arg in container.args:
            if isinstance(arg.value, (cst.Name, cst.Attribute)):
                if contains or self.kinds.kind(arg.value) is Kind.MODULE:
                    for root in self.networks.roots(arg.value):
                        if isinstance(root, (cst.Call, cst.ClassDef)):
                            yield root

    def _definitions(self, region: cst.CSTNode) -> Iterator[Definition]:
        for found in self.functions.definitions(region):
            yield from self.functions.lineage(found) if type(found) is cst.ClassDef else (found,)

    def _weights_of(self, call: cst.Call) -> int:
        """Return the weights of a layer, none for code that makes no layer."""
        name = self.names.name(call.func) or self._passed_layer(call.func)
        if name is None:  # a class that is looked up, as in `NETS[name]()`, may be any network
            return _UNKNOWN if isinstance(call.func, cst.Subscript) else 0
        if _NORMS.fullmatch(name):
            return _WIDE
        if name == "torch.nn.Parameter":
            return self._numbers_of(call)
        convolution = _CONVOLUTION.fullmatch(name)
        if convolution is not None:
            return self._filters_of(call, int(convolution[1]))
        layer = _GATES.get(name.removeprefix("torch.nn."))
        if layer is None:
            if _LIGHT.fullmatch(name) and not _HEAVY.fullmatch(name):
                return 0
            known = self.functions.definition(call.func) is not None
            return 0 if known or not self._may_be_kept(call) else _UNKNOWN
        rows, columns, gates = layer
        sides = self._width(call, rows, 0), self._width(call, columns, int(columns != rows))
        known_sides = [side for side in sides if side is not None]
        wide = _WIDE if self.names.name(call.func) != "torch.nn.Embedding" else -1
        if not known_sides or (len(known_sides) == 1 and known_sides[0] > wide):
            return _UNKNOWN
        one, other = (known_sides * 2)[:2] if len(known_sides) == 2 else (known_sides[0], _WIDE)
        recurrent = other * other if "hidden" in columns else 0
        return gates * (one * other + recurrent)

    def _may_be_kept(self, call: cst.Call) -> bool:
        """Return whether what an unknown call makes may become a part of a network."""
        if isinstance(self.tree.parent(call), (cst.Expr, cst.Decorator)):
            return False
        for outer in self.tree.ancestors(call):
            named = isinstance(outer, cst.Assign) and isinstance(outer.targets[0].target, cst.Name)
            if isinstance(outer, (cst.Assign, cst.AnnAssign, cst.Expr)) and not named:
                return True
            owner = self.scopes.scope(outer).node
            if isinstance(outer, cst.FunctionDef) and isinstance(owner, cst.ClassDef):
                made = self.functions.method(owner, "__init__")
                return made is None or outer in self.functions.reached(made)
        return True

    def _passed_layer(self, func: cst.BaseExpression) -> str | None:
        """Return the layer of torch that a parameter is by default: `linear=nn.Linear`."""
        bindings = self.scopes.reaching(func)
        defaults = (each.node.default for each in bindings if isinstance(each.node, cst.Param))
        return next((self.names.name(each) for each in defaults if each is not None), None)

    def _numbers_of(self, parameter: cst.Call) -> int:
        """Return how many numbers a parameter has, few if no shape is written for it."""
        made = (
            call
            for call in self.tree.within(parameter, cst.Call)
            if _SHAPED.fullmatch(self.names.name(call.func) or "")
        )
        shape = next(made, None)
        if shape is None or any(arg.star for arg in shape.args):
            return _WIDE if shape is None else _UNKNOWN
        given = [arg.value for arg in shape.args if arg.keyword is None]
        if len(given) == 1 and isinstance(given[0], cst.Tuple):
            given = [each.value for each in given[0].elements]
        sides = [self.widths.number(each) for each in given]
        known = math.prod(side for side in sides if side is not None)
        if None not in sides:
            return known
        return known * _WIDE if sides.count(None) == 1 and known <= _WIDE else _UNKNOWN

    def _filters_of(self, convolution: cst.Call, dimensions: int) -> int:
        """Return the weights of a convolution, more than a tiny one has if some are unknown."""
        given = self.values.argument_node(convolution, "kernel_size", 2)
        kernel = given.value if given is not None else None
        if isinstance(kernel, cst.Tuple):
            sides = [self.widths.number(each.value) for each in kernel.elements]
        else:
            sides = [self.widths.number(kernel) if kernel is not None else None] * dimensions
        sides += [
            self._width(convolution, "in_channels", 0),
            self._width(convolution, "out_channels", 1),
        ]
        known = [side for side in sides if side is not None]
        return math.prod(known) if len(known) == len(sides) else _UNKNOWN

    def _is_filled_elsewhere(self, call: cst.Call) -> bool:
        """Return whether a container gets members that do not stand inside its call."""
        return self.names.name(call.func) in _CONTAINERS and any(
            arg.star or not self._is_seen(arg.value) for arg in call.args
        )

    def _is_seen(self, member: cst.BaseExpression) -> bool:
        """Return whether the code that makes a member of a container is in view."""
        return isinstance(member, (cst.Call, cst.List)) or bool(self.networks.roots(member))

    def _times(self, call: cst.Call, region: cst.CSTNode) -> int:
        """Return how often a layer is made, a few times in a loop of unknown length."""
        for outer in self.tree.ancestors(call):
            if outer is region:
                break
            if isinstance(outer, cst.For):
                return self._passes(outer.iter)
            if isinstance(outer, (cst.ListComp, cst.GeneratorExp)):
                return self._passes(outer.for_in.iter)
            if isinstance(outer, cst.While):
                return _REPEATED
        return 1

    def _passes(self, iterated: cst.BaseExpression) -> int:
        counts = isinstance(iterated, cst.Call) and self.names.name(iterated.func) == _RANGE
        if not isinstance(iterated, cst.Call) or not counts or len(iterated.args) != 1:
            return _REPEATED
        known = self.widths.number(iterated.args[0].value)
        return _REPEATED if known is None else max(known, 0)

    def _width(self, call: cst.Call, name: str, position: int) -> int | None:
        given = self.values.argument_node(call, name, position)
        return self.widths.number(given.value) if given is not None else None
