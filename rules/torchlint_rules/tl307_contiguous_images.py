"""TL307: convolutions over images in the contiguous (NCHW) memory format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Rule, Script, State, method_of
from torchlint_rules.shared.cuda import (
    in_environment,
    makers,
    may_be_cuda,
    surroundings,
    trains,
)

_COMMENT: Final = re.compile(r"#[^\r\n]*")
_LAYOUT: Final = re.compile(
    r"channels_last|memory_format|as_strided|\w3d\b|cpp_extension|torch\.ops\b|autograd\.Function|"
    r"\bDataParallel|jit\.|quantiz|storage_offset"
)
_STRIDED: Final = (".permute(", ".contiguous(", ".stride(", ".data_ptr(")
_VIEW: Final = re.compile(r"(\w*)(?:\[[^\]\r\n]*\])?(?:\.\w+(?:\([^()\r\n]*\))?)*\.view(?:_as)?\(")
_FLAT: Final = re.compile(r"(?:\w+_)?(?:targets?|labels?|correct|y)")
_ZOO: Final = re.compile(
    r"torchvision\.models\.(?:\w+\.)?"
    r"(?:alexnet|vgg\d+\w*|resnet\d+|wide_resnet\w+|densenet\d+|squeezenet\w+)"
)
_KNOWN: Final = re.compile(
    r"(?:torch|builtins|math|numpy|collections|functools|itertools|typing)(?:\.|$)"
)
_CONVOLUTIONS: Final = ("torch.nn.Conv2d", "torch.nn.ConvTranspose2d")
_GROUPED: Final = ("torch.nn.Conv2d", "torch.nn.ConvTranspose2d")
_WRITTEN: Final = "memory_format={torch}.channels_last"
_WIDTH: Final = 100
_BECAUSE: Final = "other kernels convolve, which add in another order"
_UNSEEN: Final = "`{}` is not visible here and might view images as one row"


class ContiguousImages(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every move of a convolutional network that works in any memory format."""
        if not may_be_cuda(script) or in_environment(script):
            return
        if not trains(script):
            return
        for network in _networks(script):
            if any(map(_chooses_format, surroundings(script, network.moved))):
                continue
            images = _moves_of_images(script, network)
            first = min((network.move, *images), key=script.tree.order)
            written = script.edits.importing("torch", at=first)
            fix = None
            if written is not None:
                word = _WRITTEN.format(torch=written[0])
                edits = _network_moved(script, network.move, word)
                for move in images:
                    edits = (*edits, *script.edits.with_keyword(move, *word.split("=")))
                title = "Lay images out with their channels side by side"
                fix = Fix.close(title, edits, written[1], because=_BECAUSE)
                unseen = _unseen(script, network)
                if unseen is not None:
                    because = _UNSEEN.format(script.tree.brief(unseen.func))
                    fix = Fix.unsafe(title, edits, written[1], because=because)
            message = (
                f"{_named(script, network)} gets images in NCHW layout, which convolutions on "
                "tensor cores transpose in every step: move both with "
                "`memory_format=torch.channels_last`"
            )
            yield Finding(self.code, script.span(network.move), message, fix)


class _Network(NamedTuple):
    """A convolutional network: the call that moves it, and the calls that build it."""

    move: cst.Call
    moved: cst.BaseExpression
    made: tuple[cst.Call, ...]


def _chooses_format(script: Script) -> bool:
    """Return whether code chooses a memory format, or depends on that of an image."""
    said = script.program.vocabulary.has(_LAYOUT)
    return said or _is_strided(_COMMENT.sub("", script.tree.own_text))


def _is_strided(code: str) -> bool:
    """Return whether code depends on the memory format of an image."""
    if any(call in code for call in _STRIDED):
        return True
    return not all(
        _FLAT.fullmatch(view[1])
        for line in code.split("\n")
        if ".view" in line
        for view in _VIEW.finditer(line)
    )


def _named(script: Script, network: _Network) -> str:
    """Return a network's name, or that of its class."""
    if not isinstance(network.moved, cst.Call):
        return f"`{script.code(network.moved)}`"
    holder = script.tree.parent(network.move)
    target = holder.targets[0].target if isinstance(holder, cst.Assign) else network.moved.func
    return f"`{script.code(target)}`" if not isinstance(target, cst.Tuple) else "the network"


def _networks(script: Script) -> Iterator[_Network]:
    for site in script.calls.of_methods("to", "cuda"):
        call = site.node
        move = script.program.moves.move(call)
        if move is None or site.has_splat:
            continue
        made = makers(script, move.moved)
        if made and all(_is_open(script, each) for each in made):
            yield _Network(call, move.moved, made)


# -- the layers of a network ------------------------------------------------------


def _is_open(script: Script, made: cst.Call) -> bool:
    """Return whether the code of a network is visible and has only plain convolutions."""
    name = script.name(made.func)
    if name is not None and _ZOO.fullmatch(name):
        return True
    code = script.modules.sizes.regions(made)
    calls = [call for region in code for call in script.tree.within(region, cst.Call)]
    names = {name for call in calls if (name := script.name(call.func)) is not None}
    zoo = {each for each in names if _ZOO.fullmatch(each)}
    if not names & set(_CONVOLUTIONS) and not zoo:
        return False
    if not all(_KNOWN.match(each) for each in names - zoo):
        return False
    return all(
        (groups := script.calls.at(call).argument("groups")).state is State.ABSENT
        or groups.equals(1)
        for call in calls
        if script.name(call.func) in _GROUPED
    )


def _unseen(script: Script, network: _Network) -> cst.Call | None:
    """Return a call that passes the network, or what it returns, to code out of sight."""
    runs = script.once(_runs)
    made = [call for each in network.made for call in runs.get(each, ())]
    held = [script.tree.parent(call) for call in (network.move, *made)]
    targets = [line.targets[0].target for line in held if isinstance(line, cst.Assign)]
    paths = [script.code(each) for each in targets if isinstance(each, (cst.Name, cst.Attribute))]
    regions = [script.tree.module, *script.tree.all(cst.FunctionDef)]
    found = (script.values.visibility.receiver(region, *paths) for region in regions)
    direct = (outer for call in made if (outer := _receiver(script, call)) is not None)
    return next((each for each in (*found, *direct) if each is not None), None)


def _receiver(script: Script, run: cst.Call) -> cst.Call | None:
    """Return the unseen call that gets the result of a forward pass directly."""
    outer = script.tree.taker(run)
    if not isinstance(outer, cst.Call) or script.values.visibility.shows(outer.func):
        return None
    return outer


def _convolves_first(script: Script, made: cst.Call) -> bool:
    """Return whether the first argument of a network goes into a convolution unchanged."""
    name = script.name(made.func)
    if name in _CONVOLUTIONS or (name is not None and _ZOO.fullmatch(name)):
        return True
    if name == "torch.nn.Sequential":
        first = made.args[0].value if made.args and not made.args[0].star else None
        return isinstance(first, cst.Call) and script.answer(_convolves_first, first, False)
    inner = script.functions.definition(made.func)
    if not isinstance(inner, cst.ClassDef):
        return False
    forward = script.functions.method(inner, "forward")
    if forward is None or len(forward.params.params) < 2:
        return False
    image = forward.params.params[1]
    return any(
        isinstance(call.func, cst.Attribute)
        and call.args
        and isinstance(call.args[0].value, cst.Name)
        and [binding.node for binding in script.scopes.reaching(call.args[0].value)] == [image]
        and _is_convolution(script, call.func)
        for call in script.tree.within(forward.body, cst.Call)
    )


def _is_convolution(script: Script, layer: cst.Attribute) -> bool:
    """Return whether a layer of a network is, or starts with, a convolution."""
    bindings = script.functions.attribute(layer)
    return bool(bindings) and all(
        isinstance(each.value, cst.Call) and script.answer(_convolves_first, each.value, False)
        for each in bindings
    )


# -- edits ------------------------------------------------------------------------


def _network_moved(script: Script, move: cst.Call, word: str) -> Edits:
    """Add the memory format to a move of a network."""
    keyword, _, value = word.partition("=")
    if method_of(move) == "to":
        return script.edits.with_keyword(move, keyword, value)
    end, line, holder = script.span(move).end, script.tree.statement(move), script.tree.parent(move)
    width = len(script.source.line(script.source.position(end).row).rstrip()) + len(f".to({word})")
    if width > _WIDTH and isinstance(holder, cst.Assign) and script.edits.stands_alone(line):
        return script.edits.after(line, f"{script.code(holder.targets[-1].target)}.to({word})")
    return script.edits.insert(end, f".to({word})")


def _moves_of_images(script: Script, network: _Network) -> Sequence[cst.Call]:
    """Return the calls that move images which certainly go into the network's convolution."""
    if not all(_convolves_first(script, each) for each in network.made):
        return ()
    moves: dict[int, cst.Call] = {}
    runs = script.once(_runs)
    found = {call for made in network.made for call in runs.get(made, ())}
    for call in sorted(found, key=script.tree.order):
        for move in _moves_of(script, call.args[0].value):
            moves[id(move)] = move
    return tuple(moves.values())


def _runs(script: Script) -> dict[cst.Call, list[cst.Call]]:
    """Return the forward calls of a network, given the calls that build it."""
    found: dict[cst.Call, list[cst.Call]] = {}
    for call in script.tree.all(cst.Call):
        network = script.loops.module_call(call) if call.args else None
        for made in makers(script, network) if network is not None else ():
            found.setdefault(made, []).append(call)
    return found


def _moves_of(script: Script, node: cst.BaseExpression) -> Iterator[cst.Call]:
    """Yield the calls that move the part of a batch that a node may be."""
    if isinstance(node, cst.Call):
        move = script.program.moves.move(node)
        if (
            move is not None
            and not script.calls.at(node).has_splat
            and script.loaders.parts.of(move.moved)
        ):
            yield node
    if not isinstance(node, cst.Name):
        return
    for binding in script.scopes.reaching(node):
        if isinstance(binding.value, cst.Call):
            yield from _moves_of(script, binding.value)
