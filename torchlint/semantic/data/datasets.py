"""Datasets: the traits of a dataset that matter when worker processes read its items."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.data.itemkeys import ItemKeys
from torchlint.semantic.data.itemwork import ItemWork
from torchlint.semantic.data.randomness import is_deterministic_transform, random_name
from torchlint.semantic.data.tokenrows import TOKENIZER, TokenRows
from torchlint.semantic.scope.libraries import is_data_library
from torchlint.semantic.scope.scopes import How, dotted
from torchlint.semantic.syntax.methods import is_none, named_arguments, receiver_of, word_of
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues, ValueAnalysis


class Trait(Enum):
    """A property of a dataset, or of a function that processes its items."""

    UNSEEN = auto()
    """Its code is not in this file."""
    IN_MEMORY = auto()
    """Reading an item only indexes what is in memory."""
    ITERABLE = auto()
    UNSHARDED = auto()
    """Iterable without sharding: every worker would yield the whole stream."""
    DECODES = auto()
    """Decodes an image or a sound whenever an item is read."""
    RANDOM = auto()
    """Draws random numbers."""
    MUTATES = auto()
    """Changes its own state when an item is read."""
    ONCE = auto()
    """Makes something for itself when its first item is read."""
    HANDLE = auto()
    """Holds an open file or connection."""
    ON_DEVICE = auto()
    """Yields tensors that are on an accelerator."""
    LOCAL = auto()
    """Cannot be pickled."""
    FEW = auto()
    """So few items that starting workers costs more than they save."""
    SAME = auto()
    """All items hold the same values, but for their index."""


Traits = Mapping[Trait, str]
"""The traits found, each with the word in the file that shows it."""

_Reader = Callable[[cst.BaseExpression], Traits]

_ARRAYS: Final = (Kind.TENSOR, Kind.NDARRAY)
_ROWS: Final = "torch.utils.data.TensorDataset"
_GRAPHS: Final = "torch_geometric.data.InMemoryDataset"
_EVERY: Final = (Trait.IN_MEMORY, Trait.FEW)
"""Traits that several datasets have together only if each has them."""
_FEW: Final = 256
_HANDLES: Final = frozenset({
    "h5py.File", "lmdb.open", "lmdb.Environment", "sqlite3.connect", "cv2.VideoCapture",
    "builtins.open", "zipfile.ZipFile", "tarfile.open", "netCDF4.Dataset", "xarray.open_dataset",
    "tables.open_file", "decord.VideoReader", "av.open", "io.open", "gzip.open",
    "torchvision.io.VideoReader", "openslide.OpenSlide",
})  # fmt: skip
_DISK: Final = frozenset({
    "numpy.memmap", "numpy.load", "datasets.load_dataset", "datasets.load_from_disk",
    "numpy.lib.format.open_memmap",
})  # fmt: skip
_WRAPPERS: Final = frozenset({"torch.utils.data.Subset", "torch.utils.data.random_split"})
_JOINED: Final = frozenset({
    "torch.utils.data.ConcatDataset", "torch.utils.data.ChainDataset",
    "torch.utils.data.StackDataset",
})  # fmt: skip
_COMPOSED: Final = frozenset(
    (
        "Compose Sequential Lambda RandomApply RandomChoice RandomOrder partial ModuleList ToDtype"
    ).split()
)
_OF_ARRAYS: Final = frozenset("nonzero view tolist numpy astype squeeze reshape flatten".split())
_DEVICE_KEYWORDS: Final = frozenset("cuda use_cuda gpu use_gpu device".split())
_INDICES: Final = re.compile(r"(?:\w+_)?(?:idx|idxs|indices|index|ids|nodes)")
_PLAIN_BASES: Final = frozenset({
    "torch.utils.data.Dataset", "torch.utils.data.IterableDataset", "builtins.object",
    "abc.ABC", "typing.Generic", "torch.utils.data.MapDataPipe",
})  # fmt: skip
_ITERABLE: Final = "torch.utils.data.IterableDataset"
_STREAMS: Final = frozenset("iterable stream streaming rlds tfds wds webdataset".split())
_BUFFERS: Final = frozenset("buffer replay rollout rollouts".split())
_MAPPING: Final = frozenset(
    "map filter shuffle take skip with_format remove_columns select_columns rename_column".split()
)
"""Methods of datasets of Hugging Face that give a stream of a stream."""


class Datasets(ValueAnalysis):
    """Finds the traits of datasets, transforms and collate functions that matter for workers."""

    def __init__(self, values: KnownValues) -> None:
        super().__init__(values)
        self.work = ItemWork(values)
        self.rows = TokenRows(values)
        self.keys = ItemKeys(self.functions)
        self._open: set[int] = set()

    def traits(self, node: cst.BaseExpression) -> Traits:
        """Return the traits of the dataset that an expression evaluates to."""
        if isinstance(node, cst.Name) and _INDICES.fullmatch(node.value):
            return {Trait.IN_MEMORY: node.value}
        if self.rows.are(node):
            return {Trait.IN_MEMORY: self.tree.code(node)}
        if self.kinds.kind(node) in _ARRAYS:
            return {Trait.IN_MEMORY: self.tree.code(node), **self._moved(node)}
        return self._of_all(node, (), self._of_value)

    def classes(self, node: cst.BaseExpression, steps: tuple[None, ...] = ()) -> list[cst.ClassDef]:
        """Return the classes in view of the datasets that an expression can be, or be part of."""
        found: list[cst.ClassDef] = []
        for value in self.origins.of(node, steps).values:
            owner = self.functions.definition(value.func) if isinstance(value, cst.Call) else None
            if isinstance(owner, cst.ClassDef):
                found.append(owner)
            elif isinstance(value, cst.Call) and value.args:
                name = self.names.name(value.func)
                if name in _WRAPPERS or name in _JOINED:
                    inner: tuple[None, ...] = (None,) if name in _JOINED else ()
                    found += self.classes(value.args[0].value, inner)
        return found

    def entry_traits(
        self, dataset: cst.BaseExpression, collate: cst.BaseExpression | None, key: str
    ) -> Traits:
        """Return the traits of what one entry of a loader's batches, which are mappings, needs."""
        if collate is None:
            return self._of_entry(dataset, key)
        return _joined([self.traits(dataset), self.callable_traits(collate)])

    def _of_entry(self, dataset: cst.BaseExpression, key: str) -> Traits:
        origin = self.origins.of(dataset)
        bodies: list[cst.CSTNode] = []
        for value in origin.values:
            owner = self.functions.definition(value.func) if isinstance(value, cst.Call) else None
            if not isinstance(owner, cst.ClassDef):
                return self.traits(dataset)
            read = self.functions.method(owner, "__getitem__")
            needed = self.keys.expressions(read, key) if read is not None else ()
            if not needed:
                return self.traits(dataset)
            bodies += [body for each in needed for body in self.functions.reached(each)]
        if not origin.complete or not bodies:
            return self.traits(dataset)
        return _joined(map(self._of_body, bodies))

    def is_told_device(self, node: cst.BaseExpression) -> bool:
        """Return whether a dataset outside this file is given a device to keep its data on."""
        return any(
            isinstance(value, cst.Call)
            and self.functions.definition(value.func) is None
            and any(map(self._tells_device, value.args))
            for value in self.origins.of(node).values
        )

    def _tells_device(self, arg: cst.Arg) -> bool:
        if arg.keyword is None or arg.keyword.value not in _DEVICE_KEYWORDS:
            return False
        given = self.values.value_of(arg.value)
        return not any(given.equals(host) for host in (None, False, "cpu"))

    def callable_traits(self, node: cst.BaseExpression) -> Traits:
        """Return the traits of a transform, a collate function or another callable."""
        return self._of_all(node, (), self._of_callable)

    def _of_all(self, node: cst.BaseExpression, steps: tuple[None, ...], read: _Reader) -> Traits:
        key = id(node)
        if key in self._open:
            return {}
        self._open.add(key)
        try:
            origin = self.origins.of(node, steps)
            found = [read(value) for value in origin.values if not is_none(value)]
        finally:
            self._open.discard(key)
        if not origin.complete or not origin.values:
            rows = self._device_rows if read == self._of_value else {}
            found.append({Trait.UNSEEN: self.tree.code(node), **self._of_declared(node), **rows})
        return _joined(found)

    # -- datasets -------------------------------------------------------------

    def _of_value(self, value: cst.BaseExpression) -> Traits:
        if isinstance(value, cst.Call):
            return self._of_made(value)
        if self._in_memory_value(value):
            return {Trait.IN_MEMORY: self.tree.code(value)}
        if isinstance(value, cst.BinaryOperation):
            return _joined([self.traits(value.left), self.traits(value.right)])
        return {Trait.UNSEEN: self.tree.code(value)}

    def _in_memory_value(self, value: cst.BaseExpression) -> bool:
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
            if value.func.attr.value in _OF_ARRAYS and self.names.name(value.func) is None:
                return True
        sliced = isinstance(value, cst.Subscript) and isinstance(value.slice[0].slice, cst.Slice)
        if sliced or self._is_arithmetic(value):
            return True
        return isinstance(value, (cst.List, cst.Tuple, cst.ListComp)) or self.kinds.kind(value) in (
            *_ARRAYS,
            Kind.SEQUENCE,
        )

    def _is_arithmetic(self, value: cst.BaseExpression) -> bool:
        """Return whether a value is computed as only tensors and arrays are, not `one + other`."""
        return isinstance(value, cst.BinaryOperation) and (
            not isinstance(value.operator, cst.Add)
            or any(
                self.kinds.kind(side) is Kind.NUMBER or self._is_arithmetic(side)
                for side in (value.left, value.right)
            )
        )

    def _of_made(self, call: cst.Call) -> Traits:
        name = self.names.name(call.func) or ""
        owner = self.functions.definition(call.func)
        if isinstance(owner, cst.ClassDef):
            return {**self._device_of(call), **self._of_class(owner, call)}
        first = call.args[0].value if call.args else None
        if name == _ROWS:
            return {Trait.IN_MEMORY: "TensorDataset", **self._device_of(call)}
        if name in _WRAPPERS and first is not None:
            few = len(call.args) > 1 and self._few_indices(call.args[1].value)
            return {**self.traits(first), **({Trait.FEW: "its indices"} if few else {})}
        if name in _JOINED and first is not None:
            return self._of_all(first, (None,), self._of_value)
        if name.startswith("torchvision.datasets."):
            handle: Traits = {Trait.HANDLE: name} if name.endswith((".LSUN", ".LSUNClass")) else {}
            return _joined([handle, *self._of_transforms(call)])
        if name.startswith("torchtext.datasets."):
            return _stream(name)
        if name.startswith("torch_geometric.datasets."):
            return _of_graphs(name, call)
        if name in ("builtins.zip", "builtins.range") or self._in_memory_value(call):
            return {Trait.IN_MEMORY: name or self.tree.code(call.func), **self._device_of(call)}
        word = self.tree.code(call.func)
        rows = self._device_rows if word_of(call)[:1].islower() else {}
        return {Trait.UNSEEN: word, **self._of_foreign(call, name), **self._device_of(call), **rows}

    @cached_property
    def _device_rows(self) -> Traits:
        """That a dataset which cannot be followed may hold tensors of a device, if any does."""
        made = (call for call in self.tree.all(cst.Call) if self.names.name(call.func) == _ROWS)
        if self.tree.view.has_device_rows or any(map(self._device_of, made)):
            return {Trait.ON_DEVICE: _ROWS}
        return {}

    def _of_foreign(self, call: cst.Call, name: str) -> Traits:
        """Return that a dataset of another module is a stream or a buffer, if its name says so.

        An option of the call can say that it is a stream, too.
        """
        word = word_of(call)
        if not _BUFFERS.isdisjoint(self.names.words(word)):
            return {Trait.IN_MEMORY: word}
        if not _STREAMS.isdisjoint(self.names.words(word)):
            return _stream(word)
        if name == "datasets.load_dataset":
            streamed = self.values.argument(call, "streaming")
            return _stream("streaming=True") if streamed.equals(True) else {}
        source = receiver_of(call)
        if name or source is None or word not in _MAPPING:
            return {}
        kept = self.traits(source)
        return _stream(kept[Trait.ITERABLE]) if Trait.ITERABLE in kept else {}

    def _of_declared(self, node: cst.BaseExpression) -> Traits:
        """Return that a parameter is a stream, if its type says so."""
        types = (
            each.node.annotation.annotation
            for each in self.scopes.reaching(node)
            if isinstance(each.node, cst.Param) and each.node.annotation is not None
        )
        return _stream(_ITERABLE) if _ITERABLE in map(self.names.name, types) else {}

    def _few_indices(self, node: cst.BaseExpression) -> bool:
        value = self.values.value_of(node).node
        if not isinstance(value, cst.Call) or self.names.name(value.func) != "builtins.range":
            return False
        count = self.values.value_of(value.args[-1].value).literal if len(value.args) == 1 else None
        return type(count) is int and count < _FEW

    def _of_transforms(self, call: cst.Call) -> list[Traits]:
        """Return the traits of the transforms that a dataset is given."""
        plain = [arg.value for arg in call.args if arg.keyword is None]
        given = named_arguments(call, "transform", "target_transform", "transforms", "loader")
        given += filter(self._made_of_transforms, plain)
        return [*map(self.callable_traits, given)]

    def _made_of_transforms(self, node: cst.BaseExpression) -> bool:
        return any(
            isinstance(value, cst.Call)
            and (self.names.name(value.func) or "").startswith("torchvision.transforms.")
            for value in self.origins.of(node).values
        )

    # -- classes of this file -------------------------------------------------

    def _of_class(self, owner: cst.ClassDef, call: cst.Call) -> Traits:
        read = self.functions.method(owner, "__getitem__")
        stream = self.functions.method(owner, "__iter__")
        bases = self.functions.bases(owner)
        found: list[Traits] = []
        known = {line.name.value for line in self.functions.lineage(owner)}
        foreign = [b for b in bases if b not in _PLAIN_BASES and b.split("[")[0] not in known]
        vision = [base for base in foreign if base.startswith("torchvision.datasets.")]
        inherits = read is None and stream is None
        if vision and (inherits or self._calls_super(read)):
            found += self._of_transforms(call)
        elif inherits and _GRAPHS in foreign:
            found.append(_of_graphs(_GRAPHS, call))
        elif inherits or (foreign and not vision and self._calls_super(read)):
            found.append({Trait.UNSEEN: foreign[0] if foreign else owner.name.value})
        bodies = [
            body
            for method in (read, stream)
            if method is not None
            for body in self.functions.reached(method)
        ]
        found += [self._of_body(body) for body in bodies]
        found.append(self._of_state(owner, bodies))
        if _ITERABLE in bases:
            found.append(self._of_stream(stream))
        works = any(each.keys() - {Trait.ONCE, Trait.DECODES, Trait.RANDOM} for each in found)
        if read is not None and _ITERABLE not in bases and not works:
            found.append(self._of_memory(owner, read))
        if self._few(owner):
            found.append({Trait.FEW: f"{owner.name.value}.__len__"})
        return _first_of(found)

    def _calls_super(self, method: cst.FunctionDef | None) -> bool:
        return method is not None and any(
            self.names.name(call.func) == "builtins.super"
            for call in self.tree.within(method, cst.Call)
        )

    def _of_stream(self, stream: cst.FunctionDef | None) -> Traits:
        shards = stream is not None and any(
            (self.names.name(call.func) or "").endswith("get_worker_info")
            for body in self.functions.reached(stream)
            for call in self.tree.within(body, cst.Call)
        )
        word = "IterableDataset"
        return {Trait.ITERABLE: word} if shards else _stream(word)

    def _of_memory(self, owner: cst.ClassDef, read: cst.FunctionDef) -> Traits:
        """Return that a method only reads what is in memory, if it does."""
        word = owner.name.value
        if self.work.returns_kept(read):
            return {Trait.IN_MEMORY: word}
        if not self.work.only_indexes(read, self._on_disk):
            return {}
        same: Traits = {Trait.SAME: word} if self.work.is_made_of_names(read) else {}
        return {Trait.IN_MEMORY: word, **same}

    def _few(self, owner: cst.ClassDef) -> bool:
        length = self.functions.method(owner, "__len__")
        if length is None:
            return False
        counts = [self.values.value_of(one).literal for one in self.functions.returns(length)]
        return bool(counts) and all(type(count) is int and count < _FEW for count in counts)

    def _of_state(self, owner: cst.ClassDef, bodies: Sequence[cst.CSTNode]) -> Traits:
        """Return the traits of what an instance holds: open files, tensors on a device."""
        found: dict[Trait, str] = {}
        if self.scopes.function(owner) is not None:
            found[Trait.LOCAL] = f"{owner.name.value}, a class inside a function,"
        for line in self.functions.lineage(owner):
            found.update(self._device_of(line.body))
            for name, bindings in self.scopes.scope_at(line).bindings.items():
                if not name.startswith("self."):
                    continue
                for binding in bindings:
                    lazy = any(self.tree.inside(binding.node, body) for body in bodies)
                    plain = binding.how is How.ASSIGN and binding.value is not None
                    if plain and not lazy and self._opens(binding.value):
                        found[Trait.HANDLE] = name
        return found

    @cached_method
    def changes_object(self, method: cst.FunctionDef) -> bool:
        """Return whether a method changes what its object, or a global, holds."""
        return bool(self.work.changed(method, self._opens))

    def _opens(self, value: cst.BaseExpression | None) -> bool:
        """Return whether a value is an open file, or a part of one that is read lazily."""
        while isinstance(value, cst.Subscript) and not isinstance(value.slice[0].slice, cst.Slice):
            index = value.slice[0].slice
            if isinstance(index, cst.Index) and not isinstance(index.value, cst.SimpleString):
                return False
            value = value.value
        if isinstance(value, cst.IfExp):
            return self._opens(value.body) or self._opens(value.orelse)
        return isinstance(value, cst.Call) and self.names.name(value.func) in _HANDLES

    def _on_disk(self, node: cst.BaseExpression) -> bool:
        """Return whether indexing a value reads a file or does other work."""
        if self.kinds.kind(node) is Kind.DATASET:
            return Trait.IN_MEMORY not in self.traits(node)
        return any(
            isinstance(value, cst.Call)
            and (self.names.name(value.func) in _DISK or self.names.name(value.func) in _HANDLES)
            for value in self.origins.of(node).values
        )

    # -- code that runs for an item -------------------------------------------

    def _of_body(self, body: cst.CSTNode) -> Traits:
        """Return the traits of one function that runs whenever an item is read."""
        found: dict[Trait, str] = dict(self._device_of(body))
        changed = self.work.changed(body, self._opens)
        if changed:
            found[Trait.MUTATES] = changed
        made = self.work.made_once(body)
        if made:
            found[Trait.ONCE] = made
        drawn, decoded = self.work.drawn(body), self.work.decoded(body)
        if drawn:
            found[Trait.RANDOM] = drawn
        if decoded:
            found[Trait.DECODES] = decoded
        inner = map(self._of_inner_call, self.functions.own(body, cst.Call))
        within = map(self._of_inner_item, self.functions.own(body, cst.Subscript))
        return _first_of((found, *inner, *within))

    def _of_inner_item(self, item: cst.Subscript) -> Traits:
        """Return what an item of another dataset brings along: random draws, lambdas, files."""
        held = (item.value, *self.origins.of(item.value).values)
        if not dotted(item.value).startswith("self.") or all(
            self.kinds.kind(each) is not Kind.DATASET for each in held
        ):
            return {}
        traits = self.traits(item.value)
        return {trait: word for trait, word in traits.items() if trait not in _EVERY}

    def _of_inner_call(self, call: cst.Call) -> Traits:
        if self.functions.callee(call) is not None:
            return {}
        name = self.names.name(call.func)
        if name is not None:
            return {} if is_data_library(name) else {Trait.UNSEEN: self.tree.code(call.func)}
        held = isinstance(call.func, cst.Attribute) and dotted(call.func.value) == "self"
        if held or isinstance(call.func, (cst.Name, cst.Subscript)):
            return self.callable_traits(call.func)
        return {}

    def _of_callable(self, value: cst.BaseExpression) -> Traits:
        if isinstance(value, cst.Lambda):
            bodies = self.functions.reached(value)
            return _joined([{Trait.LOCAL: "its lambda"}, *map(self._of_body, bodies)])
        if isinstance(value, cst.Call):
            return self._of_made_callable(value)
        definition = self.functions.definition(value)
        if isinstance(definition, cst.FunctionDef):
            return self._of_function(definition)
        name = self.names.name(value)
        if name is not None and is_data_library(name):
            drawn = random_name(name)
            return {Trait.RANDOM: drawn} if drawn else {}
        return {Trait.UNSEEN: self.tree.code(value)}

    def _of_function(self, function: cst.FunctionDef) -> Traits:
        found = [self._of_body(body) for body in self.functions.reached(function)]
        if self.scopes.function(function) is not None:
            found.append({Trait.LOCAL: f"{function.name.value}, a function inside a function,"})
        return _joined(found)

    def _of_made_callable(self, call: cst.Call) -> Traits:
        name = self.names.name(call.func) or ""
        drawn = random_name(name)
        if drawn:
            return {Trait.RANDOM: drawn}
        owner = self.functions.definition(call.func)
        if isinstance(owner, cst.ClassDef):
            run = self.functions.method(owner, "__call__") or self.functions.method(
                owner, "forward"
            )
            if run is None:
                return {Trait.UNSEEN: owner.name.value}
            given = [self._of_given(arg.value) for arg in call.args]
            return _joined([self._of_function(run), *given])
        if name.rpartition(".")[2] in _COMPOSED and is_data_library(name):
            return _joined([self._of_given(arg.value) for arg in call.args])
        if is_deterministic_transform(name) or TOKENIZER.fullmatch(name):
            return {}
        return {Trait.UNSEEN: self.tree.code(call.func)}

    def _of_given(self, node: cst.BaseExpression) -> Traits:
        """Return the traits of the arguments of a composed transform: one, or a list."""
        values = self.origins.of(node).values
        if any(isinstance(value, (cst.List, cst.Tuple)) for value in values):
            return self._of_all(node, (None,), self._of_callable)
        if isinstance(node, (cst.Integer, cst.Float, cst.SimpleString)):
            return {}
        kinds = {self.kinds.kind(value) for value in values}
        if values and kinds <= {Kind.NUMBER, Kind.STRING, Kind.MAPPING, Kind.NOTHING, Kind.TENSOR}:
            return {}
        return self.callable_traits(node)

    # -- devices --------------------------------------------------------------

    def _device_of(self, region: cst.CSTNode) -> Traits:
        """Return the code that puts tensors on an accelerator, if any does."""
        moved = filter(self.work.moves_to_device, self.tree.within(region, cst.Call))
        call = next(moved, None)
        if call is None and isinstance(region, cst.Call):
            return self._moved(*(arg.value for arg in region.args))
        return {} if call is None else {Trait.ON_DEVICE: self.tree.code(call.func)}

    def _moved(self, *nodes: cst.BaseExpression) -> Traits:
        """Return the code that put one of some values on an accelerator, if any did."""
        call = next(filter(None, map(self.work.mover, nodes)), None)
        return {} if call is None else {Trait.ON_DEVICE: self.tree.code(call.func)}


def _of_graphs(word: str, call: cst.Call) -> Traits:
    """Return that graphs are kept in memory, unless something transforms each of them."""
    return {Trait.UNSEEN if named_arguments(call, "transform") else Trait.IN_MEMORY: word}


def _stream(word: str) -> Traits:
    """Return the traits of a stream that every worker may yield as a whole."""
    return {Trait.ITERABLE: word, Trait.UNSHARDED: word}


def _joined(found: Iterable[Traits]) -> Traits:
    """Combine the traits of all objects that a value can be."""
    each = list(found)
    joined = _first_of(each)
    partly = {trait for trait in _EVERY if not all(trait in other for other in each)}
    return {trait: word for trait, word in joined.items() if trait not in partly}


def _first_of(found: Iterable[Traits]) -> dict[Trait, str]:
    """Return all traits, each with the word that shows it first."""
    joined: dict[Trait, str] = {}
    for traits in found:
        for trait, word in traits.items():
            joined.setdefault(trait, word)
    return joined
