"""TL305: convolutions of one size without cuDNN's autotuner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import chain
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Kind, Loader, Rule, Script, State
from torchlint_rules.shared.cuda import (
    in_environment,
    is_convolutional,
    makers,
    may_be_cuda,
    may_hold_place,
    named_convolutional,
    place,
    setting,
    trains,
)

_LINE: Final = "{torch}.backends.cudnn.benchmark = True"
_CONVOLUTIONS: Final = frozenset(
    f"torch.nn.{lazy}{kind}{sides}d"
    for lazy in ("", "Lazy")
    for kind in ("Conv", "ConvTranspose")
    for sides in (2, 3)
)
_VARYING: Final = re.compile(
    r"collate_fn|multi_?scale|multiscale|detection|rcnn|\byolo|bounding|\bbbox(?!_inches)|pad_sequence|"
    r"pack_padded|bucket|batch_sampler|keep_ratio|torchaudio|librosa|spectrogram|"
    r"progressive_?(?:gan|grow|resiz|siz|crop|scal|train)|random_?size(?!dcrop)|random_?resolution|style_?(?:image|transfer)|content_?image"
)
_KNOWN: Final = ("torchvision.datasets.", "torch.utils.data.TensorDataset")
_REPRODUCIBLE: Final = re.compile(
    r"deterministic|reproducib|seed_everything|set_seed|seed_all|set_random_seed|setup_seed|fix_seed"
)
_SEEDERS: Final = frozenset({
    "random.seed", "numpy.random.seed", "torch.manual_seed", "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
})  # fmt: skip
_BENCHMARK: Final = re.compile("benchmark")
_ALIKE: Final = 0.85
_BECAUSE: Final = "which algorithm is fastest may differ from run to run"


class CudnnAutotunerOff(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag a program that trains a convolutional network on images of one size."""
        for written in _misspelt(script):
            yield self._of_misspelt(script, written)
        if not (may_hold_place(script) and may_be_cuda(script)) or in_environment(script):
            return
        node = place(script) if trains(script) else None
        if node is None or not script.tree.is_own(node):
            return
        if not _convolves(script) or not _has_one_size(script):
            return
        if _may_vary(script) or any(map(_wants_to_repeat, (script, script.running))):
            return
        switch = _switched_off(script)
        if switch is None and any(
            each.program.vocabulary.has(_BENCHMARK) for each in (script, script.running)
        ):
            return
        edits = _switched_on(script, switch)
        fix = None
        if edits is not None:
            fix = Fix.unsafe("Let cuDNN measure its algorithms", edits, because=_BECAUSE)
        message = (
            "cuDNN picks convolution algorithms by a heuristic, though all images have one size: "
            "`torch.backends.cudnn.benchmark = True` times them once and keeps the fastest"
        )
        yield Finding(self.code, script.span(node), message, fix)

    def _of_misspelt(self, script: Script, written: cst.Attribute) -> Finding:
        message = (
            f"`{script.code(written)}` is no setting of torch, so cuDNN's autotuner stays off: "
            "`benchmark` is the setting"
        )
        edits = script.edits.replace(written.attr, "benchmark")
        fix = Fix.unsafe("Write `benchmark`", edits, because=_BECAUSE)
        return Finding(self.code, script.span(written), message, fix)


def _misspelt(script: Script) -> list[cst.Attribute]:
    """Return what code turns on in the place of `torch.backends.cudnn.benchmark`."""
    return [
        target.target
        for assign in script.tree.own(cst.Assign)
        if isinstance(assign.value, cst.Name) and assign.value.value == "True"
        for target in assign.targets
        if isinstance(target.target, cst.Attribute)
        and target.target.attr.value != "benchmark"
        and get_close_matches(target.target.attr.value, ("benchmark",), cutoff=_ALIKE)
        and script.name(target.target.value) == "torch.backends.cudnn"
    ]


def _wants_to_repeat(script: Script) -> bool:
    """Return whether runs of a script should be reproducible bit for bit."""
    if script.program.vocabulary.has(_REPRODUCIBLE) or any(
        True for _ in script.program.determinism.settings()
    ):
        return True
    seeded = {
        script.name(site.node.func) for site in script.calls.of_methods("seed", "manual_seed")
    }
    seeded |= {script.name(site.node.func) for site in script.calls.of_methods("manual_seed_all")}
    return len(seeded & _SEEDERS) > 1


def _switched_off(script: Script) -> cst.Assign | None:
    """Return the only assignment that turns the autotuner off."""
    found = [
        assign
        for assign in script.tree.all(cst.Assign)
        for target in assign.targets
        if isinstance(target.target, cst.Attribute)
        and target.target.attr.value == "benchmark"
        and script.name(target.target.value) == "torch.backends.cudnn"
    ]
    off = [each for each in found if script.code(each.value) == "False"]
    return off[0] if len(off) == len(found) == 1 else None


def _convolves(script: Script) -> bool:
    """Return whether the trained networks are convolutional, by their names or layers.

    Those of the whole file count where it does not show what makes a trained one.
    """
    networks = [
        script.loops.module_call(call) for step in script.loops.steps.all for call in step.forwards
    ]
    made = [makers(script, each) if each is not None else () for each in networks]
    parts = [
        part
        for each in made
        for call in each
        for region in script.modules.sizes.regions(call)
        for part in script.tree.within(region, cst.Call)
    ]
    if made and all(made) and not any(_is_hidden(script, each) for each in parts):
        return any(script.name(each.func) in _CONVOLUTIONS for each in parts)
    return named_convolutional(script) or not _CONVOLUTIONS.isdisjoint(script.calls.called)


def _is_hidden(script: Script, made: cst.Call) -> bool:
    """Return whether a call makes a network that is not in view, or gets one."""
    if any(
        not isinstance(arg.value, cst.Call) and script.kind(arg.value) is Kind.MODULE
        for arg in made.args
    ):
        return True
    known = (script.name(made.func) or "").startswith("torch.nn.")
    known = known or script.functions.definition(made.func) is not None
    return not known and (script.kind(made) is Kind.MODULE or is_convolutional(script, made))


def _may_vary(script: Script) -> bool:
    """Return whether the code that loads and trains on images mentions several sizes.

    Where a dataset is not in view, all of the file may be about its images.
    """
    parts = _about_images(script)
    if parts is None:
        return script.program.vocabulary.has_lowered(_VARYING)
    names = (name for part in parts for name in script.tree.within(part, cst.Name))
    return any(_VARYING.search(word) for word in {name.value.lower() for name in names})


def _about_images(script: Script) -> list[cst.CSTNode] | None:
    """Return the code of the loaders, datasets and training loops, None if part is unknown."""
    found: list[cst.CSTNode] = []
    for loader in script.loaders:
        made = makers(script, loader.dataset) if loader.dataset is not None else ()
        if not made or not all(_is_known_dataset(script, each) for each in made):
            return None
        found += (loader.node, *chain.from_iterable(map(script.modules.sizes.regions, made)))
    return [*found, *_training(script)]


def _training(script: Script) -> Iterator[cst.CSTNode]:
    """Yield the training loops, and the functions that run their steps."""
    for step in script.loops.steps.all:
        yield from (loop.node for loop in script.loops.around(step.backward))
        yield from script.loops.steps.code_around(step.backward)


def _is_known_dataset(script: Script, made: cst.Call) -> bool:
    """Return whether a call makes a dataset of a class in view, of torchvision, or of tensors."""
    if (script.name(made.func) or "").startswith(_KNOWN):
        return True
    return isinstance(script.functions.definition(made.func), cst.ClassDef)


def _has_one_size(script: Script) -> bool:
    """Return whether every loader collates several samples, which then have one size."""
    loaders = list(script.loaders)
    return bool(loaders) and all(map(_takes_batches, loaders)) and not _resizes(script)


def _takes_batches(loader: Loader) -> bool:
    """Return whether a loader gets a size for its batches, also from a dictionary of options."""
    size = loader.batch_size
    if size.state is State.UNKNOWN:
        return bool(loader.possible("batch_size"))
    return size.state is not State.ABSENT and not size.equals(1)


def _resizes(script: Script) -> bool:
    """Return whether a training loop resizes its images."""
    return any(
        (script.name(call.func) or "").startswith("torch.nn.functional.interpolate")
        for part in _training(script)
        for call in script.tree.within(part, cst.Call)
    )


def _switched_on(script: Script, switch: cst.Assign | None) -> Edits | None:
    if switch is not None:
        return script.edits.replace(switch.value, "True")
    return setting(script, _LINE)
