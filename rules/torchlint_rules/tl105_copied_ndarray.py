"""TL105: an ndarray copied into a tensor that could share its memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Array,
    Binding,
    CallSite,
    Finding,
    Fix,
    Frequency,
    How,
    Impact,
    Rule,
    Script,
    method_of,
    receiver_of,
)
from torchlint_rules.shared.tensoruses import TensorUse, tensor_use

_WRITING: Final = frozenset("fill sort put partition resize itemset setfield".split())
_VIEWS: Final = frozenset("reshape ravel transpose squeeze swapaxes view".split())
_LOOKS: Final = frozenset("T values iloc loc".split())
_KEYWORDS: Final = frozenset(("data", "dtype", "device"))
_READING: Final = ("__getitem__", "__getitems__")


class CopiedNdarray(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every array that is copied for each item or step."""
        for site in script.tree.in_file(script.calls.of("torch.tensor")):
            given = site.given("data")
            keywords = {arg.keyword.value if arg.keyword else "data" for arg in site.node.args}
            if given is None or site.has_splat or not keywords <= _KEYWORDS:
                continue
            array = script.values.arrays.array(given.value)
            if array is None or array.frozen or _is_copied_anyway(script, site, array):
                continue
            if not _is_repeated(script, site.node):
                continue
            because = _shared(script, site.node, given, array)
            if because is None:
                continue
            because = because or script.loaders.provenance.called_elsewhere(given.value)
            plain = len(site.node.args) == 1 and given.keyword is None and array.sure
            maker = "from_numpy" if plain else "as_tensor"
            word, code = script.code(site.node.func), script.code(given.value)
            message = (
                f"`{word}` copies the array `{code}` every time: `torch.{maker}` shares its memory"
            )
            fix = None
            edits = script.edits.renamed(site.node, maker)
            if edits is not None:
                title = f"Write `torch.{maker}`"
                unsafe = Fix.unsafe(title, edits, because=because) if because else None
                fix = unsafe or Fix.exact(title, edits)
            impact: Impact | None = "low" if _decodes(script, site.node) else None
            yield Finding(self.code, script.span(site.node), message, fix, impact=impact)


# -- where --------------------------------------------------------------------


def _is_repeated(script: Script, node: cst.CSTNode) -> bool:
    """Return whether code runs for every item or step, also through functions of this file."""
    frequency = script.loops.frequency(node)
    function = script.scopes.function(node)
    if function is not None and frequency is not Frequency.RARE:
        if _dataset(script, node) is not None and function.name.value in _READING:
            return True
        if any(code.node is function for code in script.loaders.items.all()):
            return True
        if any(
            script.answer(_is_repeated, call, False) for call in script.functions.callers(function)
        ):
            return True
    return frequency is Frequency.EVERY_PASS


def _decodes(script: Script, node: cst.CSTNode) -> bool:
    """Return whether the function around a node decodes images or sound, which takes longer."""
    function, work = script.scopes.function(node), script.loaders.datasets.work
    return function is not None and any(map(work.decoded, script.functions.reached(function)))


def _dataset(script: Script, node: cst.CSTNode) -> cst.ClassDef | None:
    """Return the dataset in whose body a node stands."""
    owner = script.scopes.class_of(node)
    function = script.scopes.function(node)
    if owner is None or function is None or script.functions.method(owner, "__getitem__") is None:
        return None
    return owner


# -- owners of the memory ------------------------------------------------------


def _shared(script: Script, call: cst.Call, given: cst.Arg, array: Array) -> str | None:
    """Return what else would hold the tensor's memory, None if the memory is written to."""
    if array.fresh:
        return ""
    root = _root(given.value)
    use = tensor_use(script, call)
    if use is TensorUse.WRITTEN and not _is_own(script, call, root):
        return None
    if _is_written(script, root, call):
        return None
    if use is TensorUse.COPIED or _is_own(script, call, root) or _collated(script, call, use):
        return ""
    because = f"tensor and `{script.code(root)}` share their memory: writing to one changes both"
    if isinstance(given.value, cst.Attribute) and given.value.attr.value == "values":
        return f"{because}; pandas 3 may hand out read-only memory, of which torch warns"
    return because


def _is_copied_anyway(script: Script, site: CallSite, array: Array) -> bool:
    """Return whether a tensor of another type, or on a device, needs memory of its own."""
    if site.given("device") is not None or _is_of_ids(script, site.node):
        return True
    given = site.given("dtype")
    name = (script.name(given.value) or "").rpartition(".")[2] if given is not None else ""
    return given is not None and (name or "?") != array.dtype


def _is_of_ids(script: Script, call: cst.Call) -> bool:
    """Return whether a tensor becomes whole numbers for a device: `torch.tensor(x).long().cuda()`.

    Ids and labels are some kilobytes: beside their copy to the device a second one is nothing.
    """
    methods: list[str] = []
    for outer in script.tree.ancestors(call):
        if isinstance(outer, cst.Call):
            methods.append(method_of(outer))
        elif not isinstance(outer, cst.Attribute):
            break
    return "long" in methods and not {"to", "cuda"}.isdisjoint(methods)


def _root(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return the array whose memory an expression shares."""
    while True:
        if isinstance(node, cst.Subscript) or (
            isinstance(node, cst.Attribute) and node.attr.value in _LOOKS
        ):
            node = node.value
        elif (viewed := receiver_of(node, *_VIEWS)) is not None:
            node = viewed
        else:
            return node


def _is_own(script: Script, call: cst.Call, root: cst.BaseExpression) -> bool:
    """Return whether a name holds new memory that only its loop iteration holds and reads."""
    if not isinstance(root, cst.Name):
        made = script.values.arrays.array(root)
        return made is not None and made.fresh
    bindings = script.scopes.reaching(root)
    home = script.scopes.home(call)
    if not bindings or any(script.scopes.home(binding.node) is not home for binding in bindings):
        return False
    if not all(_is_new(script, binding) for binding in bindings):
        return False
    loops = [loop.node for loop in script.loops.around(call)]
    if any(not script.tree.inside(b.node, loop) for b in bindings for loop in loops[:1]):
        return False
    return not any(
        use is not root
        and script.scopes.stored(use) is None
        and any(binding in bindings for binding in script.scopes.reaching(use))
        for use in script.tree.among(script.tree.spelled(root.value), home)
    )


def _is_new(script: Script, binding: Binding) -> bool:
    """Return whether a binding assigns new memory, or a view of the name's previous value."""
    if binding.how is How.AUGMENTED:
        return True
    value = binding.value
    made = (
        script.values.arrays.array(value)
        if value is not None and binding.how is How.ASSIGN
        else None
    )
    if value is None or made is None or made.fresh:
        return made is not None
    root = _root(value)
    if not isinstance(root, cst.Name) or root.value != binding.name:
        return False
    return all(script.answer(_is_new, each, False) for each in script.scopes.reaching(root))


def _is_written(script: Script, root: cst.BaseExpression, call: cst.Call) -> bool:
    """Return whether an array is modified while the tensor may still be used."""
    path = script.code(root)
    own = isinstance(root, cst.Name)
    home = script.scopes.function(call)
    writes: list[tuple[cst.CSTNode, cst.BaseExpression]] = [
        (each.node, each.target)
        for module in script.tree.modules
        for each in script.values.writes.within(module)
    ]
    writes += [(site.node, site.receiver) for site in script.calls.of_methods(*_WRITING)]
    return any(
        script.code(_root(target)) == path and _matters(script, node, call, own, home)
        for node, target in writes
    )


def _matters(
    script: Script, write: cst.CSTNode, call: cst.Call, own: bool, home: cst.FunctionDef | None
) -> bool:
    """Return whether a write can follow the creation of the tensor."""
    place = script.scopes.function(write)
    if own and place is home:
        loop = next(script.loops.around(call), None)
        again = loop is not None and script.tree.inside(write, loop.node)
        return again or script.tree.order(write) > script.tree.order(call)
    if own:
        return place is None
    return place is not None and place.name.value != "__init__"


def _collated(script: Script, call: cst.Call, use: TensorUse) -> bool:
    """Return whether a dataset returns a tensor only to loaders that copy it into their batch."""
    owner = _dataset(script, call)
    function = script.scopes.function(call)
    if use is not TensorUse.RETURNED or owner is None or function is None:
        return False
    if function.name.value != "__getitem__" or script.loaders.provenance.unseen_owner(
        owner, function
    ):
        return False
    if any(_hands_out(script, each, owner) for each in script.tree.all(cst.Call)):
        return False
    loaders = list(script.loaders)
    handed = [loader.dataset for loader in loaders]
    known = any("Dataset" in base for base in script.functions.bases(owner)) or any(
        each is not None and script.functions.instance_of(each) is owner for each in handed
    )
    if (
        not loaders
        or not known
        or any(
            script.functions.instance_of(item.value) is owner
            for item in script.tree.all(cst.Subscript)
        )
    ):
        return False
    return not any(
        loader.has_splat or loader.given("collate_fn") is not None or loader.batch_size.equals(None)
        for loader in loaders
    )


def _hands_out(script: Script, call: cst.Call, owner: cst.ClassDef) -> bool:
    """Return whether a call passes a dataset to another module, which may modify its items."""
    if (
        script.functions.callee(call) is not None
        or script.functions.definition(call.func) is not None
    ):
        return False
    if (script.name(call.func) or "").startswith(("torch.", "builtins.")):
        return False
    return any(script.functions.instance_of(arg.value) is owner for arg in call.args)
