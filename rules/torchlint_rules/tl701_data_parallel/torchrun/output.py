"""Actions of only one process: write files and logs, show progress bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import Edit, Script, Span, method_of
from torchlint_rules.tl701_data_parallel.torchrun.shape import Shape
from torchlint_rules.tl701_data_parallel.torchrun.wrap import ObstacleError

_WRITES: Final = frozenset({
    "torch.save", "torchvision.utils.save_image", "numpy.save", "numpy.savez", "numpy.savetxt",
    "numpy.savez_compressed", "json.dump", "pickle.dump", "yaml.dump", "os.makedirs", "os.mkdir",
    "os.rename", "os.replace", "os.remove", "shutil.copyfile", "shutil.copy", "shutil.copy2",
    "shutil.move", "shutil.rmtree", "matplotlib.pyplot.savefig", "matplotlib.pyplot.show",
    "torch.jit.save", "torch.onnx.export",
})  # fmt: skip
_WRITING_METHODS: Final = frozenset(
    "savefig to_csv to_json save_pretrained write_text mkdir add_scalar add_scalars add_image "
    "add_images add_histogram add_graph add_text add_figure add_hparams add_embedding".split()
)
_BARS: Final = (
    "tqdm.tqdm", "tqdm.trange", "tqdm.auto.tqdm", "tqdm.auto.trange", "tqdm.notebook.tqdm",
    "tqdm.autonotebook.tqdm", "tqdm.tqdm_notebook", "tqdm.tnrange",
)  # fmt: skip
_STORED: Final = "it would store the wrapper, which plain Python cannot load"
_STORES: Final = frozenset(
    "save saver dump dumps checkpoint checkpointer export stopping stopper deepcopy copy".split()
)
_SAME_NETWORK: Final = frozenset("cpu to eval half float cuda train".split())
_HOLDERS: Final = (cst.Dict, cst.List, cst.Tuple, cst.Set)


def muted_bars(script: Script) -> Iterator[Edit]:
    """Yield the edits that restrict progress bars to rank 0."""
    for site in script.calls.of(*_BARS):
        if site.has_splat:
            raise ObstacleError(site.node, "its keywords are not spelled out")
        if site.given("disable") is None:
            yield from script.edits.with_keyword(site.node, "disable", "RANK != 0")


def guarded(script: Script, taken: set[Span]) -> Iterator[Edit]:
    """Yield the edits that restrict writing to rank 0; raises `ObstacleError`.

    `taken` are the spans that other edits replace.
    """
    blocks: list[cst.Module | cst.IndentedBlock] = [
        script.tree.module,
        *script.tree.all(cst.IndentedBlock),
    ]
    whole: list[cst.BaseStatement] = []
    for block in blocks:
        if any(script.tree.inside(block, line) for line in whole):
            continue
        run: list[cst.BaseStatement] = []
        for line in block.body:
            if _is_write(script, line):
                _refuse_network(script, line)
                run.append(line)
                whole.append(line)
            elif run:
                yield from _guard(script, run, taken)
                run = []
        if run:
            yield from _guard(script, run, taken)
    _refuse_open_files(script)


def _guard(script: Script, run: Sequence[cst.BaseStatement], taken: set[Span]) -> Iterator[Edit]:
    """Put consecutive statements under `if RANK == 0:`."""
    wrapped = script.edits.wrap(run, "if RANK == 0:")
    spans = [edit.span for edit in wrapped]
    if any(one.start < each.end and each.start < one.end for one in spans for each in taken):
        raise ObstacleError(run[0], "it stands in parentheses over several lines")
    yield from wrapped


def _is_write(script: Script, line: cst.BaseStatement) -> bool:
    if isinstance(line, cst.With):
        return any(_opens_for_writing(script, item.item) for item in line.items)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return False
    small = line.body[0]
    if not isinstance(small, cst.Expr) or not isinstance(small.value, cst.Call):
        return False
    call = small.value
    if script.name(call.func) in _WRITES or method_of(call) in _WRITING_METHODS:
        return True
    return _hands_over_weights(script, call)


def _hands_over_weights(script: Script, call: cst.Call) -> bool:
    """Return whether a function of another file gets a `state_dict()` to save."""
    if script.calls.at(call).method == "load_state_dict":
        return False
    if script.functions.definition(call.func) is not None:
        return False
    return "save" in script.code(call.func) and any(
        script.calls.at(inner).method == "state_dict"
        for inner in script.tree.within(call, cst.Call)
    )


def _opens_for_writing(script: Script, node: cst.BaseExpression) -> bool:
    if not isinstance(node, cst.Call) or script.name(node.func) != "builtins.open":
        return False
    mode = script.calls.at(node).argument("mode", 1).literal
    return isinstance(mode, str) and any(letter in mode for letter in "wax+")


def _refuse_network(script: Script, line: cst.BaseStatement) -> None:
    if script.loops.runs_module(line):
        raise ObstacleError(line, "rank 0 alone would run the network, and wait for the others")


def _refuse_open_files(script: Script) -> None:
    for name in script.tree.all(cst.Name):
        if script.name(name) == "wandb" and script.scopes.reads(name):
            line = script.tree.statement(name)
            raise ObstacleError(line, "every process would start a run of wandb")
    for call in script.tree.all(cst.Call):
        if _opens_for_writing(script, call) and not isinstance(
            script.tree.parent(call), cst.WithItem
        ):
            raise ObstacleError(call, "every process would write this file")
        logs = script.calls.at(call).given("filename") is not None
        log = script.name(call.func)
        if log == "logging.FileHandler" or (logs and log == "logging.basicConfig"):
            raise ObstacleError(call, "every process would write this log")


def refuse_stored_wrappers(script: Script, shape: Shape) -> None:
    """Raise `ObstacleError` where the wrapped network itself, not its weights, may be stored."""
    for name in script.tree.all(cst.Name):
        if not script.scopes.reads(name) or not shape.is_wrapped(script, name):
            continue
        holder = script.tree.parent(name)
        word = holder.attr.value if isinstance(holder, cst.Attribute) else None
        if word is None or word in _SAME_NETWORK:
            line = script.tree.smallest_statement(name)
            for outer in script.tree.ancestors(name):
                if outer is line:
                    break
                if isinstance(outer, _HOLDERS) or _stores(script, outer):
                    raise ObstacleError(line, _STORED)


def _stores(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a node is a call of another file's function that may store its arguments."""
    if not isinstance(node, cst.Call) or script.functions.callee(node) is not None:
        return False
    return not _STORES.isdisjoint(script.names.words(script.code(node.func)))
