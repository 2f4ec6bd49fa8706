"""Item work: the random numbers, mutations and transfers of code that reads one item."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.data.randomness import RANDOM_METHODS, random_name
from torchlint.semantic.loops.keeping import Keeping
from torchlint.semantic.scope.libraries import TO_HOST
from torchlint.semantic.scope.limits import CALLED
from torchlint.semantic.scope.scopes import How, dotted
from torchlint.semantic.scope.words import names_run
from torchlint.semantic.syntax.methods import (
    container_of,
    method_of,
    named_arguments,
)
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import ValueAnalysis

_DECODING: Final = re.compile(
    r"PIL\.Image\.open|cv2\.(?:imread|imdecode)|torchaudio\.load|librosa\.load|soundfile\.read|"
    r"torchvision\.io\.(?:read|decode)_\w+"
)
_GENERATORS: Final = frozenset({
    "numpy.random.default_rng", "numpy.random.RandomState", "random.Random", "torch.Generator",
    "numpy.random.Generator",
})  # fmt: skip
_CHANGING: Final = frozenset(
    "append extend add update pop setdefault insert clear remove popitem appendleft".split()
)
_CHEAP_CALLS: Final = frozenset({
    "torch.tensor", "torch.as_tensor", "torch.from_numpy", "torch.FloatTensor", "torch.LongTensor",
    "torch.Tensor", "builtins.int", "builtins.float", "builtins.len", "builtins.str",
    "builtins.dict", "builtins.tuple", "builtins.list", "numpy.array", "numpy.asarray",
    "torch.is_tensor", "builtins.isinstance", "torch.IntTensor", "torch.squeeze",
    "torch.unsqueeze", "numpy.expand_dims", "numpy.clip", "numpy.abs", "numpy.transpose",
    "numpy.ascontiguousarray", "torch.clamp", "torch.abs", "numpy.float32", "numpy.int64",
    "torch.reshape", "torch.flatten", "torch.permute", "torch.transpose", "torch.swapaxes",
    "torch.movedim", "numpy.reshape", "numpy.ravel", "numpy.squeeze", "numpy.swapaxes",
    "numpy.moveaxis", "numpy.random.randint", "random.randint", "random.randrange", "random.random",
    "random.choice", "torch.randint",
})  # fmt: skip
_CHEAP_METHODS: Final = frozenset(
    "float long int double half bool copy astype item unsqueeze squeeze view reshape tolist to "
    "permute transpose clip clamp abs clone detach contiguous flatten type items values keys "
    "numpy".split()
)
_BLOCKS: Final = (cst.For, cst.While, cst.With)
_DEVICE_WORD: Final = re.compile(r"['\"](?:cuda|xpu|mps|npu|hpu)(?::\d+)?['\"]")


class ItemWork(ValueAnalysis):
    """Analyses the functions that run whenever an item of a dataset is read."""

    # -- random numbers -------------------------------------------------------

    def drawn(self, body: cst.CSTNode) -> str:
        """Return the name with which a function draws random numbers, "" if it draws none."""
        for call in self.functions.own(body, cst.Call):
            found = random_name(self.names.name(call.func) or "")
            if found:
                return found
            if isinstance(call.func, cst.Attribute) and self.names.name(call.func) is None:
                if call.func.attr.value in RANDOM_METHODS or self._generator(call.func.value):
                    return self.tree.code(call.func)
        return ""

    def _generator(self, node: cst.BaseExpression) -> bool:
        return isinstance(node, (cst.Name, cst.Attribute)) and any(
            isinstance(value, cst.Call) and self.names.name(value.func) in _GENERATORS
            for value in self.origins.of(node).values
        )

    def decoded(self, body: cst.CSTNode) -> str:
        """Return the name by which a function decodes an image or a sound, "" if it does not."""
        names = (self.names.name(call.func) or "" for call in self.functions.own(body, cst.Call))
        return next(filter(_DECODING.fullmatch, names), "")

    # -- changes --------------------------------------------------------------

    def changed(self, body: cst.CSTNode, opens: Callable[[cst.BaseExpression], bool]) -> str:
        """Return the attribute or global that a function mutates, "" if it mutates none.

        Opening a file on first use (`opens`) does not count: each worker opens its own. Nor does
        what a branch makes once, nor what each item computes again before reading it.
        """
        for target, value in self._targets(body):
            if value is not None and opens(value):
                continue
            name = self._kept(target)
            if name and not self._is_made_once(target, body) and not self._is_scratch(target, body):
                return name
        for call in self.functions.own(body, cst.Call):
            name = self._changed_by(call)
            if name and not self._is_made_once(call, body):
                return name
        return ""

    def _changed_by(self, call: cst.Call) -> str:
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _CHANGING:
            return "" if self.functions.callee(call) is not None else self._kept(call.func.value)
        drawn = self.names.name(call.func) == "builtins.next" and call.args
        return self._kept(call.args[0].value) if drawn else ""

    def made_once(self, body: cst.CSTNode) -> str:
        """Return what a function makes when the first item is read, "" if it makes nothing."""
        targets = (target for target, _ in self._targets(body))
        made = (self._kept(each) for each in targets if self._is_made_once(each, body))
        return next(filter(None, made), "")

    def _is_made_once(self, node: cst.CSTNode, body: cst.CSTNode, depth: int = CALLED) -> bool:
        """Return whether a node runs only in a branch that makes what it finds missing."""
        if Keeping(self.functions).makes_once(node, body):
            return True
        calls = self.functions.callers(body) if isinstance(body, cst.FunctionDef) else ()
        return bool(calls and depth) and all(
            self._is_made_once(call, self.scopes.home(call), depth - 1) for call in calls
        )

    def _is_scratch(self, target: cst.BaseExpression, body: cst.CSTNode) -> bool:
        """Return whether each item assigns an attribute before anything reads it."""
        if not isinstance(target, cst.Attribute) or not isinstance(body, cst.FunctionDef):
            return False
        mentions = self.functions.attributes(target.attr.value)
        first = min(self.tree.among(mentions, body), key=self.tree.order)
        line = self.tree.statement(first)
        return (
            not self.scopes.reads(first)
            and self.tree.parent(line) is body.body
            and list(self.tree.among(mentions, line)) == [first]
            and any(map(self.scopes.reads, mentions))
            and all(self.tree.inside(each, body) or self._begins(each) for each in mentions)
        )

    def _begins(self, node: cst.Attribute) -> bool:
        """Return whether a constructor gives an attribute its first value."""
        function = self.scopes.function(node)
        begins = function is not None and function.name.value == "__init__"
        return begins and not self.scopes.reads(node)

    def _targets(
        self, body: cst.CSTNode
    ) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression | None]]:
        for assign in self.functions.own(body, cst.Assign):
            for each in assign.targets:
                if isinstance(each.target, cst.Tuple):
                    yield from ((element.value, None) for element in each.target.elements)
                else:
                    yield each.target, assign.value
        for augmented in self.functions.own(body, cst.AugAssign):
            yield augmented.target, None
        for removed in self.functions.own(body, cst.Del):
            yield removed.target, None

    def _kept(self, node: cst.BaseExpression) -> str:
        """Return the name if it outlives the call: an attribute of `self`, or a `global`."""
        node = container_of(node)
        name = dotted(node)
        if name.startswith("self."):
            return name
        if isinstance(node, cst.Name):
            outward = self.scopes.scope(node).outward.get(name)
            return name if outward is not None else ""
        return ""

    # -- devices --------------------------------------------------------------

    def moves_to_device(self, call: cst.Call) -> bool:
        """Return whether a call puts a tensor on an accelerator (or on a variable `device`)."""
        func = call.func
        if told := named_arguments(call, "device"):
            return self._is_device(told[0])
        if not isinstance(func, cst.Attribute):
            return False
        if func.attr.value == "cuda":
            return self.names.name(func) is None
        return func.attr.value == "to" and any(
            self._is_device(arg.value) for arg in call.args[:1] if arg.keyword is None
        )

    def mover(self, node: cst.BaseExpression) -> cst.Call | None:
        """Return the call that put a value, or what it is computed from, on an accelerator.

        Networks compute where they are, so a forward pass is one.
        """
        seen: set[int] = set()
        edge = [node]
        while edge:
            each = edge.pop()
            for value in (*self.origins.of(each).values, *self._unpacked(each)):
                if id(value) in seen:
                    continue
                seen.add(id(value))
                if isinstance(value, cst.Call) and self._puts_on_device(value):
                    return value
                edge += self._parts(value)
        return None

    def _unpacked(self, node: cst.BaseExpression) -> list[cst.Call]:
        """Return the calls of which a name holds one of several results."""
        bindings = self.scopes.reaching(node)
        made = (each.value for each in bindings if each.how is How.UNPACKED)
        return [value for value in made if isinstance(value, cst.Call)]

    def _puts_on_device(self, call: cst.Call) -> bool:
        return self.moves_to_device(call) or self.kinds.kind(call.func) is Kind.MODULE

    def _parts(self, value: cst.BaseExpression) -> list[cst.BaseExpression]:
        """Return what a tensor is computed from, on the same device."""
        if isinstance(value, cst.Subscript):
            return [value.value]
        if isinstance(value, cst.BinaryOperation):
            return [value.left, value.right]
        if not isinstance(value, cst.Call) or method_of(value) in TO_HOST:
            return []
        name = self.names.name(value.func)
        if name is None:
            return [value.func.value] if isinstance(value.func, cst.Attribute) else []
        return [arg.value for arg in value.args] if name.startswith("torch.") else []

    def _is_device(self, node: cst.BaseExpression) -> bool:
        named = any(
            _DEVICE_WORD.fullmatch(self.tree.code(each))
            for each in (node, *self.origins.of(node).values)
        )
        return (named or self.kinds.kind(node) is Kind.DEVICE) and not self.stays(node)

    def stays(self, node: cst.BaseExpression, seen: frozenset[int] = frozenset()) -> bool:
        """Return whether a device is known to be the host, or the device of another tensor."""
        if isinstance(node, cst.Name) and node.value != "None":
            found = self.scopes.reaching(node)
            inner = seen | {id(binding) for binding in found}
            return bool(found) and all(
                id(binding) in seen
                or (
                    bool(values := self.functions.held(binding))
                    and all(self.stays(value, inner) for value in values)
                )
                for binding in found
            )
        if isinstance(node, cst.IfExp):
            return self.stays(node.body, seen) and self.stays(node.orelse, seen)
        if isinstance(node, cst.Attribute):
            return node.attr.value == "device" and self.is_item(node.value)
        if isinstance(node, cst.Call):
            named = self.names.name(node.func) == "torch.device" and len(node.args) == 1
            return named and self.tree.code(node.args[0].value).strip("'\"") == "cpu"
        return self.tree.code(node).strip("'\"") in ("cpu", "None")

    def is_item(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a tensor in use, not an object holding settings."""
        if isinstance(node, cst.Subscript) or self.kinds.kind(node) is Kind.TENSOR:
            return True
        if self.kinds.kind(node) is Kind.MODULE:
            return False
        if isinstance(node, cst.Attribute):
            return self.is_item(node.value)
        if not isinstance(node, cst.Name):
            return False
        found = self.scopes.reaching(node)
        local = all(self.scopes.function(each.node) is not None for each in found)
        return bool(found) and local and not names_run(node.value)

    # -- indexing -------------------------------------------------------------

    def only_indexes(
        self, read: cst.FunctionDef, works: Callable[[cst.BaseExpression], bool]
    ) -> bool:
        """Return whether a `__getitem__` only indexes data that the object keeps in memory.

        `works` returns whether indexing a value reads a file or does other work.
        """
        if not self._is_cheap(read, CALLED):
            return False
        indexed = [
            node.value
            for node in self.functions.own(read, cst.Subscript)
            if dotted(node.value).startswith("self.")
        ]
        frames = any(
            isinstance(node, cst.Attribute) and node.attr.value in ("iloc", "loc", "iat", "at")
            for node in indexed
        )
        if not indexed:
            return self.is_made_of_names(read)
        return not frames and not any(works(node) for node in indexed)

    def returns_kept(self, read: cst.CSTNode) -> bool:
        """Return whether a method returns what the object keeps, if it does, before it works."""
        body = read.body.body if isinstance(read, cst.FunctionDef) else ()
        return any(
            isinstance(line, cst.If)
            and (path := self._path_returned(line)).startswith("self.")
            and any(dotted(each) == path for each in self.tree.within(line.test, cst.Attribute))
            for line in body
        )

    def _path_returned(self, line: cst.If) -> str:
        """Return what a branch returns an item of, "" for other branches."""
        returned = next(self.tree.within(line.body, cst.Return), None)
        value = returned.value if returned is not None else None
        return dotted(value.value) if isinstance(value, cst.Subscript) else ""

    def is_made_of_names(self, read: cst.FunctionDef) -> bool:
        """Return whether an item holds only the index and what the object was given."""
        local = self.scopes.scope_at(read).bindings
        return all(map(self.names.is_empty, self.functions.own(read, cst.Call))) and all(
            isinstance(node.value, cst.Name) and node.value.value in local
            for node in self.functions.own(read, cst.Subscript)
        )

    def _is_cheap(self, body: cst.FunctionDef, depth: int) -> bool:
        """Return whether a function has no loop, and calls nothing that costs more than a copy."""
        if any(True for kind in _BLOCKS for _ in self.tree.within(body, kind)):
            return False
        return all(
            self._costs_little(call, depth)
            for call in self.functions.own(body, cst.Call)
            if not self._is_made_once(call, body) and not self.is_left_out(call.func)
        )

    def is_left_out(self, hook: cst.BaseExpression) -> bool:
        """Return whether an optional part is None wherever the program makes the object."""
        known = self.origins.of(hook).known
        return bool(known) and all(self.values.value_of(each).equals(None) for each in known)

    def _costs_little(self, call: cst.Call, depth: int) -> bool:
        name = self.names.name(call.func)
        if name is not None:
            return name in _CHEAP_CALLS
        callee = self.functions.callee(call)
        if callee is None or not dotted(call.func).startswith("self."):
            return method_of(call) in _CHEAP_METHODS
        return depth > 0 and self._is_cheap(callee, depth - 1)
