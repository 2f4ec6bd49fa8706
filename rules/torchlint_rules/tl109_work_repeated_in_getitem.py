"""TL109: work that a dataset repeats for every item."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import (
    CALLERS,
    Binding,
    Finding,
    Impact,
    ItemCode,
    Kind,
    Note,
    Per,
    Rule,
    Script,
    method_of,
    receiver_of,
)
from torchlint_rules.shared.tokenizers import tokenizer_of

_READS: Final = re.compile(
    r"(?:json|pickle|yaml|joblib|torch|dill)\.(?:safe_|full_|unsafe_)?load|"
    r"numpy\.(?:load|loadtxt|genfromtxt)|pandas\.read_\w+|scipy\.io\.loadmat|librosa\.load|"
    r"PIL\.Image\.open|cv2\.imread|nibabel\.load|soundfile\.read|torchaudio\.load|"
    r"torchvision\.io\.(?:read_image|decode_image)|"
    r"h5py\.File|lmdb\.open|sqlite3\.connect|zipfile\.ZipFile|tarfile\.open"
)
_BUFFERS: Final = ("io.BytesIO", "io.StringIO")
"""What makes a file in memory, for something to write into."""
_LISTS: Final = frozenset("os.listdir os.scandir os.walk glob.glob glob.iglob".split())
_LIST_METHODS: Final = ("glob", "rglob", "iterdir")
_BUILDS: Final = re.compile(r"transformers\.\w+\.from_pretrained|torchvision\.models\.[a-z]\w*")
_FILTERS: Final = re.compile(
    r"torchaudio\.transforms\.(?:Mel\w*|MFCC|LFCC|Resample|\w*Spectrogram)|librosa\.filters\.\w+"
)
"""Transforms of sound that compute their filters when they are made."""
_SPECTRA: Final = re.compile(
    r"torchaudio\.(?:transforms\.(?:Mel\w*|MFCC|LFCC|\w*Spectrogram)|compliance\.kaldi\.\w+)|"
    r"librosa\.(?:feature\.\w+|stft|cqt)"
)
_RESAMPLES: Final = ("torchaudio.functional.resample", "librosa.resample")
_AT_ONE_RATE: Final = (
    "resamples sound in every epoch; store the files at the rate that the training needs"
)
_TENSORS: Final = ("torch.tensor", "torch.as_tensor", "torch.LongTensor", "torch.FloatTensor")
_ONCE: Final = "for each item; make one tensor of the list, once, and slice that"
_WHOLE: Final = ("read", "readlines", "read_text", "read_bytes")
_NO_NETWORKS: Final = frozenset(
    (
        "transform transforms augment augmentation aug normalize resize criterion encoder decoder"
    ).split()
)


class WorkRepeatedInGetitem(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the work that every item, or every batch, repeats."""
        seen: set[int] = set()
        for code in script.loaders.items.all():
            if code.per is Per.STREAM or _is_unused(script, code):
                continue
            if script.loaders.datasets.work.returns_kept(code.node):
                continue
            found: dict[tuple[str, Impact | None], list[cst.Call]] = {}
            for call, message, impact in _repeated(script, code):
                if id(call) not in seen:
                    seen.add(id(call))
                    found.setdefault((message, impact), []).append(call)
            for (message, impact), (first, *others) in found.items():
                notes = tuple(Note(script.span(each), "and here") for each in others)
                yield Finding(self.code, script.span(first), message, None, notes, impact)


def _is_unused(script: Script, code: ItemCode) -> bool:
    """Return whether nothing uses the class of a dataset, in a script that is run."""
    owner = code.owner
    if owner is None or not script.whole.loops.guard.guards():
        return False
    names = script.whole.tree.spelled(owner.name.value)
    return not script.functions.called_unseen(cst.ensure_type(code.node, cst.FunctionDef)) and all(
        name is owner.name or script.tree.inside(name, owner) for name in names
    )


def _repeated(script: Script, code: ItemCode) -> Iterator[tuple[cst.Call, str, Impact | None]]:
    """Yield the calls that do the same for each item, with their messages and impact."""
    one = "batch" if code.per is Per.BATCH else "item"
    bodies = [each for each in script.functions.reached(code.node) if not _is_cached(script, each)]
    drawn = any(script.loaders.datasets.work.drawn(body) for body in bodies)
    beside = any(script.loaders.datasets.work.decoded(body) for body in bodies)
    beside = beside or _is_read_by_workers(script, code)
    for body in bodies:
        for call in script.functions.own(body, cst.Call):
            what = _constant_work(script, call)
            if what:
                changes = _Changes(script, bodies)
                if not _is_kept(script, call) and not changes.varies(_worked_on(script, call)):
                    message = f"`{code.label}` {what} again for each {one}; do it once, before"
                    yield call, message, "medium" if "filters" in what else None
            elif code.per is Per.ITEM and (numbers := _list_sliced(script, call)):
                message = f"`{code.label}` makes a tensor of a part of `{numbers}` {_ONCE}"
                yield call, message, "medium"
            elif code.per is Per.ITEM and script.name(call.func) in _RESAMPLES:
                if not _is_stored(script, call):
                    yield call, f"`{code.label}` {_AT_ONE_RATE}", "medium"
            elif code.per is Per.ITEM and not drawn and not _is_kept(script, call):
                work = _item_work(script, call)
                if work:
                    short = (beside and "tokenize" in work) or _of_constant(script, call)
                    long: Impact | None = "medium" if "spectrogram" in work else None
                    yield call, f"`{code.label}` {work}", "low" if short else long


def _is_read_by_workers(script: Script, code: ItemCode) -> bool:
    """Return whether all loaders in view that read a dataset have workers, beside the device."""
    read = [
        loader
        for loader in script.loaders
        if loader.dataset is not None
        and code.owner in script.loaders.datasets.classes(loader.dataset)
    ]
    return bool(read) and not any(loader.has_no_workers for loader in read)


def _constant_work(script: Script, call: cst.Call) -> str:
    """Return the expensive work of a call if its input is the same each time."""
    func = call.func
    name = script.name(func) or ""
    word = script.code(func)
    if name in _LISTS:
        return f"lists the directory (`{word}`)"
    if _BUILDS.fullmatch(name):
        return f"loads `{word}`"
    if _FILTERS.fullmatch(name):
        return f"computes the filters of `{word}`"
    if _READS.fullmatch(name):
        mapped = script.calls.at(call).given("mmap_mode", 1) is not None
        return "" if mapped and name == "numpy.load" else f"reads the same file (`{word}`)"
    if not name and method_of(call) in _LIST_METHODS:
        return f"lists the directory (`{word}`)"
    opened = receiver_of(call, *_WHOLE)
    if opened is not None and not name and not call.args and _opens(script, opened):
        return f"reads the same file (`{word}`)"
    return ""


def _worked_on(script: Script, call: cst.Call) -> cst.BaseExpression:
    """Return the input of a call: the directory of a directory search."""
    owner = receiver_of(call, *_LIST_METHODS)
    return owner if owner is not None and script.name(call.func) is None else call


def _opens(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a file that is opened to be read completely."""
    if isinstance(node, cst.Name):
        value = script.scopes.only(node).value
        return isinstance(value, cst.Call) and _opens(script, value)
    return isinstance(node, cst.Call) and script.name(node.func) in (
        "builtins.open",
        "pathlib.Path",
    )


def _item_work(script: Script, call: cst.Call) -> str:
    """Return the result that a call computes from one item and that could be cached."""
    func = call.func
    made = script.values.origins.of(func).values
    made = tuple(each.func for each in made if isinstance(each, cst.Call)) or (func,)
    if any(_SPECTRA.fullmatch(script.name(each) or "") for each in made):
        return (
            f"computes a spectrogram (`{script.code(func)}`) of the same sound in every epoch; "
            "store it, or compute it for whole batches on the device"
        )
    ran = tokenizer_of(script, call)
    if ran is None and (script.name(func) or "").startswith("nltk.tokenize."):
        ran = func
    if ran is not None:
        return f"runs `{script.code(ran)}` on each item in every epoch; tokenize all items once"
    network = script.loops.module_call(call)
    if not isinstance(network, cst.Attribute) or not script.names.words(network.attr.value):
        return ""
    if not _NO_NETWORKS.isdisjoint(script.names.words(network.attr.value)):
        return ""
    return (
        f"runs `{script.code(network)}` on single items; run it on whole batches in the loop, or "
        "once for all items and keep the result"
    )


def _list_sliced(script: Script, call: cst.Call) -> str:
    """Return the list kept by the object of which a call makes a slice into a tensor."""
    node = call.args[0].value if script.name(call.func) in _TENSORS and call.args else call
    for _ in range(CALLERS):
        cut = script.scopes.only(node).value or node
        if not isinstance(cut, cst.Subscript) or not isinstance(cut.slice[0].slice, cst.Slice):
            return ""
        node = cut.value
        if script.code(node).startswith("self."):
            return script.code(node) if script.kind(node) is Kind.SEQUENCE else ""
    return ""


def _of_constant(script: Script, call: cst.Call) -> bool:
    """Return whether the input of a call is a short text: written out, or kept by the dataset."""
    given = call.args[0].value if call.args else None
    if given is not None and isinstance(script.values.value_of(given).literal, str):
        return True
    function = script.scopes.function(call)
    names = list(script.tree.within(given, cst.Name)) if isinstance(given, cst.Attribute) else []
    owners = {each.node for name in names[:1] for each in script.scopes.reaching(name)}
    return function is not None and any(
        isinstance(owner, cst.Param) and script.functions.owner_of_self(owner) is not None
        for owner in owners
    )


# -- what is the same each time -----------------------------------------------


class _Changes:
    """What changes from one item to the next, in the functions that run for an item."""

    def __init__(self, script: Script, bodies: Sequence[cst.CSTNode]) -> None:
        self._script = script
        self._bodies = bodies
        self._seen: set[int] = set()

    def varies(self, node: cst.CSTNode) -> bool:
        """Return whether an expression depends on the item, or is random."""
        script = self._script
        calls = script.tree.within(node, cst.Call)
        if any(map(self._draws, calls)):
            return True
        for name in script.tree.within(node, cst.Name):
            for binding in script.scopes.reaching(name):
                if id(binding) not in self._seen:
                    self._seen.add(id(binding))
                    added = script.values.origins.additions(name)
                    if self._binding_varies(binding) or any(map(self.varies, added)):
                        return True
        return any(
            any(script.tree.inside(binding.node, body) for body in self._bodies)
            for held in script.tree.within(node, cst.Attribute)
            for binding in script.functions.attribute(held)
        )

    def _draws(self, call: cst.Call) -> bool:
        """Return whether a call takes the next item, or something random, or makes a buffer."""
        script = self._script
        name = script.name(call.func)
        if name == "builtins.next" or (name in _BUFFERS and not call.args):
            return True
        return bool(script.loaders.datasets.work.drawn(script.tree.statement(call)))

    def _binding_varies(self, binding: Binding) -> bool:
        script = self._script
        if isinstance(binding.node, cst.Param):
            if script.functions.owner_of_self(binding.node) is not None:
                return False
            home = script.scopes.home(binding.node)
            if isinstance(home, cst.FunctionDef) and home.name.value == "__getitem__":
                return True
            given = [
                one
                for one in script.functions.given(binding.node)
                if script.scopes.home(one) is not home
            ]
            return not given or any(map(self.varies, given))
        if binding.value is None or script.scopes.function(binding.node) is None:
            return binding.value is None and isinstance(binding.node, cst.ExceptHandler)
        return self.varies(binding.value)


def _is_cached(script: Script, body: cst.CSTNode) -> bool:
    """Return whether a decorator caches the result of a function, or all its callers keep it."""
    if not isinstance(body, cst.FunctionDef):
        return False
    callers = script.functions.callers(body)
    return any("cache" in script.code(each.decorator) for each in body.decorators) or (
        bool(callers) and all(_is_stored(script, call) for call in callers)
    )


def _is_kept(script: Script, call: cst.Call) -> bool:
    """Return whether a call is in a branch that caches its result in the object or runs rarely."""
    branch: cst.CSTNode | None = script.tree.parent(call)
    while branch is not None and not isinstance(branch, (cst.FunctionDef, cst.Lambda)):
        if isinstance(branch, (cst.If, cst.ExceptHandler, cst.IfExp)):
            return True
        branch = script.tree.parent(branch)
    return _is_stored(script, call)


def _is_stored(script: Script, call: cst.Call) -> bool:
    """Return whether the object keeps the result of a call."""
    return any(
        script.code(each.target).startswith("self.")
        for line in script.tree.within(script.tree.statement(call), cst.Assign)
        for each in line.targets
    )
