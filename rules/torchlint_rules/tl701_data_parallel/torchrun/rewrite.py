"""The rewrite of a DataParallel script into one that runs under torchrun and plain Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import libcst as cst

from torchlint.api import Edit, Edits, Script, method_of
from torchlint_rules.tl701_data_parallel.torchrun.agreement import Agreement
from torchlint_rules.tl701_data_parallel.torchrun.frame import Frame, Writer, merged
from torchlint_rules.tl701_data_parallel.torchrun.output import (
    guarded,
    muted_bars,
    refuse_stored_wrappers,
)
from torchlint_rules.tl701_data_parallel.torchrun.shape import shape_of
from torchlint_rules.tl701_data_parallel.torchrun.wrap import DATA_PARALLEL, ObstacleError

_OWN_NAMES: Final = frozenset("DISTRIBUTED RANK LOCAL_RANK WORLD_SIZE on_gpu".split())
_LOOSE: Final = (cst.IfExp, cst.Lambda, cst.NamedExpr)
_BY_NUMBER: Final = "a GPU is chosen by number"


def under_torchrun(script: Script, call: cst.Call) -> Edits:
    """Return the rewrite of the script around a wrapped network; raises `ObstacleError`."""
    return _Rewriter(script, shape_of(script, call)).result()


@dataclass
class _Rewriter(Writer):
    imports: list[Edit] = field(default_factory=list)

    def result(self) -> Edits:
        for name in self.script.tree.all(cst.Name):
            if name.value in _OWN_NAMES:
                raise ObstacleError(name, "the rewrite needs this name")
        Agreement(self.script, self.shape).check()
        refuse_stored_wrappers(self.script, self.shape)
        self._devices()
        self._wrap()
        self._downloads()
        self._loader()
        self._epochs()
        self._sizes()
        self.edits += guarded(self.script, {edit.span for edit in self.edits})
        self.edits += muted_bars(self.script)
        self._late_loads()
        frame = Frame(self.script, self.shape)
        frame.write(self.edits)
        return merged([*self.imports, *frame.edits, *self.edits, *frame.ends])

    # -- devices and the wrap -------------------------------------------------

    def _devices(self) -> None:
        """Replace the first GPU by the GPU of this process; any other number is an obstacle."""
        script = self.script
        for text in script.tree.all(cst.SimpleString):
            value = text.value.strip("rbuRBU").strip("'\"")
            if value == "cuda:0":
                self.edits += script.edits.replace(text, '"cuda"')
            elif value.startswith("cuda:"):
                raise ObstacleError(script.tree.parent(text) or text, _BY_NUMBER)
            elif value == "CUDA_VISIBLE_DEVICES":
                line = script.tree.statement(text)
                raise ObstacleError(line, "GPUs are chosen here: leave that to the shell")
        for joined in script.tree.all(cst.FormattedString):
            if "cuda:" in script.code(joined)[:8]:
                raise ObstacleError(joined, _BY_NUMBER)
        for call in script.tree.all(cst.Call):
            number = any(isinstance(arg.value, cst.Integer) for arg in call.args)
            moves = script.name(call.func) is None and method_of(call) in ("cuda", "to")
            if script.name(call.func) == "torch.cuda.set_device" or (
                number and (moves or script.name(call.func) == "torch.device")
            ):
                raise ObstacleError(call, _BY_NUMBER)

    def _wrap(self) -> None:
        """Put the network on the GPU of this process, and wrap it there."""
        wrap, script = self.shape.wrap, self.script
        wrapper = self._imported("torch.nn.parallel", "DistributedDataParallel")
        name, source = wrap.target.value, script.code(wrap.source)
        placed = script.code(wrap.whole).replace(script.code(wrap.call), source, 1)
        if wrap.whole is wrap.call:
            placed = f'{source}.to("cuda" if on_gpu else "cpu")'
        self.under(
            wrap.statement,
            "if DISTRIBUTED:",
            "\ton_gpu = torch.cuda.is_available()",
            f"\t{name} = {placed}",
            f"\t{name} = {wrapper}({name}, device_ids=[LOCAL_RANK] if on_gpu else None)",
            "else:",
        )
        for call in script.calls.of("builtins.isinstance"):
            asked = call.node.args[-1].value
            if script.name(asked) == DATA_PARALLEL:
                self.edits += script.edits.replace(asked, f"({script.code(asked)}, {wrapper})")
        if wrap.condition is not None:
            test = wrap.condition.test
            code = script.code(test)
            code = f"({code})" if isinstance(test, _LOOSE) and not test.lpar else code
            self.edits += script.edits.replace(test, f"DISTRIBUTED or {code}")

    def _imported(self, module: str, name: str) -> str:
        """Return the spelling of a name, and import it."""
        found = self.script.edits.importing_names(module, name)
        if found is None:
            raise ObstacleError(self.shape.wrap.call, f"the name `{name}` is taken")
        self.imports += found[1]
        return found[0][0]

    # -- data -----------------------------------------------------------------

    def _loader(self) -> None:
        """Divide the samples of each batch over the processes."""
        script, rewrite = self.script, self.script.edits
        dataset, size, shuffle = self.shape.given
        named = script.code(dataset)
        if not isinstance(dataset, (cst.Name, cst.Attribute)):
            named = "train_dataset"
            if script.tree.spelled(named):
                raise ObstacleError(dataset, f"the rewrite needs the name `{named}`")
            flat = script.tree.breaks_lines(dataset)
            made = script.code(dataset) if flat else script.tree.text(dataset)
            self.before(self.shape.loader_line, f"{named} = {made}")
            self.edits += rewrite.replace(dataset, named)
        self.edits += rewrite.replace(size, f"{script.tree.operand(size)} // WORLD_SIZE")
        options = [named, "WORLD_SIZE", "RANK"]
        if shuffle is None:
            options.append("shuffle=False")
        else:
            self.edits += rewrite.replace(shuffle.value, "not DISTRIBUTED")
        drop = script.calls.at(self.shape.loader).given("drop_last")
        if drop is not None and not script.values.value_of(drop.value).equals(False):
            options.append(f"drop_last={script.code(drop.value)}")
        sampler = self._imported("torch.utils.data", "DistributedSampler")
        sampler = f"{sampler}({', '.join(options)}) if DISTRIBUTED else None"
        self.edits += rewrite.with_keyword(self.shape.loader, "sampler", sampler)

    def _downloads(self) -> None:
        """Let one process of each machine download before the others read."""
        script, tree = self.script, self.script.tree
        lines = [
            tree.statement(call)
            for call in tree.all(cst.Call)
            if script.calls.at(call).argument("download").equals(True)
        ]
        for line in lines:
            entry = script.program.entry(line)
            inside = entry is not None and entry.block is self.shape.entry.block
            beside = tree.parent(line) is tree.parent(lines[0])
            if not inside or not beside or not script.edits.stands_alone(line):
                raise ObstacleError(line, "every process would download this at once")
        if lines:
            wait = "\ttorch.distributed.barrier()"
            self.before(lines[0], "if LOCAL_RANK != 0:", f"{wait}  # local rank 0 downloads first")
            self.after(lines[-1], "if DISTRIBUTED and LOCAL_RANK == 0:", wait)

    def _late_loads(self) -> None:
        """Wait for rank 0 before a checkpoint of this run is loaded."""
        epochs, script, tree = self.shape.epochs, self.script, self.script.tree
        for site in script.calls.of("torch.load") if epochs is not None else ():
            line = tree.statement(site.node)
            if epochs is None or tree.order(line) < tree.order(epochs):
                continue
            beside = script.scopes.blocks(line)[:1] == script.scopes.blocks(epochs)[:1]
            if not beside or tree.inside(line, epochs) or not script.edits.stands_alone(line):
                raise ObstacleError(site.node, "a checkpoint is read while rank 0 may write it")
            wait = "\ttorch.distributed.barrier()  # rank 0 has written it"
            self.before(line, "if DISTRIBUTED:", wait)

    # -- loops ----------------------------------------------------------------

    def _epochs(self) -> None:
        """Shuffle the samples again in each epoch."""
        epochs = self.shape.epochs
        if epochs is None or self.shape.given.shuffle is None:
            return
        assert isinstance(epochs.target, cst.Name)
        assert isinstance(epochs.body, cst.IndentedBlock)
        line = f"\t{self._loader_in(epochs)}.sampler.set_epoch({epochs.target.value})"
        self.above(epochs.body.body[0], "if DISTRIBUTED:", line)

    def _loader_in(self, epochs: cst.For) -> str:
        """Return the name of the training loader in the epoch loop."""
        script = self.script
        home = script.scopes.home(self.shape.loader)
        if isinstance(home, cst.Module) or home is script.scopes.home(epochs):
            return self.shape.loader_name.value
        raise ObstacleError(epochs, "the epoch loop cannot reach the training loader")

    def _sizes(self) -> None:
        """Count the samples of one process where the training counts those of the dataset."""
        script, loop = self.script, self.shape.batches
        loader = script.code(loop.loader) if loop.loader is not None else ""
        for site in script.calls.of("builtins.len"):
            behind = script.tree.order(site.node) > script.tree.order(loop.node)
            here = script.scopes.home(site.node) is script.scopes.home(loop.node)
            if behind and here and self._is_dataset(site.node.args[0].value):
                self.edits += script.edits.replace(site.node.args[0].value, f"{loader}.sampler")

    def _is_dataset(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.Attribute) and node.attr.value == "dataset":
            return self.script.program.loader_call(node.value) is self.shape.loader
        return self.script.code(node) == self.script.code(self.shape.given.dataset)
