"""The form of a script that can be rewritten for torchrun, or the line that prevents it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import How, Kind, Loop, Role, Script, Start, State, method_of, receiver_of
from torchlint_rules.tl701_data_parallel.torchrun.wrap import (
    DATA_PARALLEL,
    ObstacleError,
    Wrap,
    assigned,
    wrap_of,
)

_ENDS: Final = ("sys.exit", "builtins.exit", "builtins.quit")
_REFUSED: Final = {
    "torch.multiprocessing.spawn": "the script starts processes of its own",
    "torch.multiprocessing.spawn.spawn": "the script starts processes of its own",
    "torch.multiprocessing.set_start_method": "the script starts processes of its own",
    "torch.multiprocessing.Process": "the script starts processes of its own",
    "multiprocessing.set_start_method": "the script starts processes of its own",
    "multiprocessing.Process": "the script starts processes of its own",
    "torch.autograd.grad": "gradients that it takes are not shared between processes",
    "torch.optim.LBFGS": "its line search would differ between processes",
    "builtins.input": "every process would ask",
}
_MODULE_API: Final = frozenset(
    "module parameters named_parameters buffers named_buffers modules named_modules children "
    "named_children state_dict load_state_dict train eval to cuda cpu half float double "
    "bfloat16 zero_grad requires_grad_ apply training forward share_memory type no_sync "
    "register_forward_hook device_ids".split()
)


class LoaderArguments(NamedTuple):
    """What the training loader is made of."""

    dataset: cst.BaseExpression
    batch_size: cst.BaseExpression
    shuffle: cst.Arg | None
    """The argument that shuffles, None if the samples come in order."""


class Shape(NamedTuple):
    """A training script of the common form, with the parts that change."""

    wrap: Wrap
    entry: Start
    batches: Loop
    epochs: cst.For | None
    loader: cst.Call
    loader_line: cst.SimpleStatementLine
    loader_name: cst.Name
    given: LoaderArguments

    def is_wrapped(self, script: Script, node: cst.CSTNode) -> bool:
        """Return whether an expression is the wrapped network, by its name or as a parameter."""
        names = {self.wrap.target.value, script.code(self.wrap.source)}
        if not isinstance(node, cst.Name):
            return False
        binding = script.scopes.only(node)
        if isinstance(binding.node, cst.Param):
            given = script.functions.given(binding.node)
            return any(isinstance(one, cst.Name) and one.value in names for one in given)
        return node.value in names


def shape_of(script: Script, call: cst.Call) -> Shape:
    """Return the form of a script around one wrapping; raises `ObstacleError`."""
    return _Reader(script).shape(call)


@dataclass
class _Reader:
    script: Script

    def shape(self, call: cst.Call) -> Shape:
        self._refuse_calls()
        owner = self.script.scopes.class_of(call)
        if owner is not None:
            raise ObstacleError(owner, "the network is wrapped in a class")
        wrap = wrap_of(self.script, call)
        entry = self.script.program.entry(call)
        if entry is None:
            place = self.script.scopes.function(call) or call
            raise ObstacleError(place, "where the script enters it is not visible here")
        self._refuse_end(entry)
        batches = self._batches(entry)
        loader, line, name = self._loader(batches)
        given = self._arguments(loader)
        shape = Shape(wrap, entry, batches, self._epochs(batches), loader, line, name, given)
        self._refuse_network(shape)
        self._refuse_optimizers(shape)
        self._refuse_losses(shape)
        self._refuse_batch_size(shape)
        return shape

    def _refuse_calls(self) -> None:
        for site in self.script.calls.of(*_REFUSED):
            raise ObstacleError(site.node, _REFUSED[site.name or ""])
        for handler in self.script.tree.all(cst.ExceptHandler):
            if any(self.script.loops.is_step(c) for c in self._tried(handler)):
                raise ObstacleError(handler, "a process that skips a step stops all the others")

    def _tried(self, handler: cst.ExceptHandler) -> Iterator[cst.Call]:
        outer = self.script.tree.parent(handler)
        if isinstance(outer, cst.Try) and self.script.loops.batch_loop(outer) is not None:
            yield from self.script.tree.within(outer.body, cst.Call)

    def _refuse_end(self, entry: Start) -> None:
        last = entry.block.body[-1]
        if isinstance(entry.block, cst.SimpleStatementSuite):
            raise ObstacleError(last, "it shares its line with other statements")
        for call in self.script.tree.within(last, cst.Call):
            if self.script.name(call.func) in _ENDS:
                raise ObstacleError(call, "it leaves before the process group can be closed")

    # -- loops and loaders ----------------------------------------------------

    def _batches(self, entry: Start) -> Loop:
        loops = self.script.program.training_loops()
        if not loops:
            raise ObstacleError(entry.statement, "the training loop is not in this file")
        if len(loops) > 1:
            raise ObstacleError(loops[1].node, "there is a second training loop")
        loop = loops[0]
        drawn = isinstance(loop.node, cst.For) and self.script.values.kinds.loader(loop.node.iter)
        if not drawn:
            raise ObstacleError(
                loop.node, "the loop does not run over a DataLoader that is visible here"
            )
        if self.script.scopes.class_of(loop.node) is not None:
            raise ObstacleError(loop.node, "the training loop stands in a class")
        start = self.script.program.entry(loop.node)
        if start is None or start.block is not entry.block:
            raise ObstacleError(loop.node, "who runs the training loop is not visible here")
        return loop

    def _loader(self, loop: Loop) -> tuple[cst.Call, cst.SimpleStatementLine, cst.Name]:
        script = self.script
        assert loop.loader is not None
        loader = script.program.loader_call(loop.loader)
        if loader is None:
            raise ObstacleError(loop.loader, "it is not one DataLoader made in this file")
        name, line = assigned(self.script, loader, loader, "the training loader")
        if next(script.loops.around(loader), None) is not None:
            raise ObstacleError(loader, "the training loader is made in a loop")
        if script.program.entry(loader) is None:
            raise ObstacleError(
                loader, "the code that makes the training loader runs more than once"
            )
        for other in script.program.draws(loader):
            if other.role is not Role.TRAIN_BATCH:
                raise ObstacleError(other.node, "the training loader is read here, too")
        return loader, line, name

    def _arguments(self, loader: cst.Call) -> LoaderArguments:
        site = self.script.calls.at(loader)
        dataset, size = site.given("dataset"), site.given("batch_size")
        if dataset is None:
            raise ObstacleError(loader, "its dataset is not spelled out")
        owner = self.script.functions.instance_of(dataset.value)
        if owner is not None and any(
            base.endswith("IterableDataset") for base in self.script.functions.bases(owner)
        ):
            raise ObstacleError(dataset, "a DistributedSampler cannot divide an IterableDataset")
        if site.has_splat:
            raise ObstacleError(loader, "its keywords are not spelled out")
        for name in ("sampler", "batch_sampler"):
            if site.argument(name).state is not State.ABSENT:
                raise ObstacleError(site.given(name) or loader, "it has a sampler of its own")
        if size is None or site.argument("batch_size").literal in (None, 1):
            raise ObstacleError(size or loader, "its batch size cannot be divided by the processes")
        shuffle = site.argument("shuffle")
        if shuffle.state is not State.ABSENT and not isinstance(shuffle.literal, bool):
            raise ObstacleError(
                site.given("shuffle") or loader, "whether it shuffles is decided elsewhere"
            )
        given = site.given("shuffle") if shuffle.equals(True) else None
        return LoaderArguments(dataset.value, size.value, given)

    def _epochs(self, batches: Loop) -> cst.For | None:
        loop = self.script.program.epoch_loop(batches)
        if loop is None:
            home = self.script.scopes.function(batches.node)
            if home is not None and len(self.script.functions.callers(home)) > 1:
                raise ObstacleError(home, "it is run from several places")
            return None
        node = loop.node
        if (
            not isinstance(node, cst.For)
            or not isinstance(node.target, cst.Name)
            or not isinstance(node.body, cst.IndentedBlock)
            or not self.script.values.iteration.counts(node.iter)
        ):
            raise ObstacleError(node, "the epoch loop counts no epochs")
        return node

    # -- network, optimizer, loss ---------------------------------------------

    def _refuse_network(self, shape: Shape) -> None:
        script, wrap = self.script, shape.wrap
        for attribute in script.tree.all(cst.Attribute):
            if attribute.attr.value in _MODULE_API or not isinstance(attribute.value, cst.Name):
                continue
            behind = script.tree.order(attribute) > script.tree.order(wrap.call)
            if behind and attribute.value.value == wrap.target.value:
                if shape.is_wrapped(script, attribute.value):
                    raise ObstacleError(attribute, "a wrapped network has it behind `.module` only")
        for mention in (*script.tree.all(cst.Attribute), *script.tree.all(cst.Name)):
            holder = script.tree.parent(mention)
            if script.name(mention) == DATA_PARALLEL and isinstance(holder, cst.Comparison):
                raise ObstacleError(holder, "the type of the network is compared")

    def _refuse_optimizers(self, shape: Shape) -> None:
        script = self.script
        made = [call for call in script.tree.all(cst.Call) if self._makes_optimizer(call)]
        if not made:
            raise ObstacleError(
                shape.batches.node, "the optimizer is made in code that is not visible here"
            )
        for call in made:
            if not call.args:
                raise ObstacleError(call, "what the optimizer steps is not spelled out")
            networks = list(self._networks(call.args[0].value, 4))
            if not all(shape.is_wrapped(script, node) for node in networks):
                raise ObstacleError(call, "the optimizer steps another network, too")
            if not networks:
                raise ObstacleError(
                    call, "whose parameters the optimizer steps is not visible here"
                )

    def _makes_optimizer(self, call: cst.Call) -> bool:
        name = self.script.name(call.func) or ""
        return name.startswith("torch.optim.") and self.script.kind(call) is Kind.OPTIMIZER

    def _networks(self, node: cst.CSTNode, depth: int) -> Iterator[cst.Name]:
        """Yield the networks in an expression, following its names."""
        for name in self.script.tree.within(node, cst.Name) if depth else ():
            if self.script.kind(name) is Kind.MODULE:
                yield name
                continue
            for binding in self.script.scopes.reaching(name):
                if binding.value is not None and binding.how in (How.ASSIGN, How.LOOP):
                    yield from self._networks(binding.value, depth - 1)

    def _refuse_losses(self, shape: Shape) -> None:
        script = self.script
        own = list(script.functions.run_in(shape.batches.node.body))
        for call in own:
            owner = receiver_of(call)
            if isinstance(owner, cst.Attribute) and owner.attr.value == "module":
                owner, past = owner.value, method_of(call) not in _MODULE_API
            else:
                past = method_of(call) in ("forward", "module")
            if past and owner is not None and shape.is_wrapped(script, owner):
                raise ObstacleError(
                    call, "it goes past the wrapper, which then shares no gradients"
                )
        criteria = [
            call for call in script.tree.all(cst.Call) if script.kind(call) is Kind.CRITERION
        ]
        for call in (*criteria, *own):
            for name in ("reduction", "size_average"):
                given = script.calls.at(call).given(name)
                value = script.values.value_of(given.value) if given is not None else None
                if value is not None and not value.equals("mean") and not value.equals(True):
                    raise ObstacleError(given or call, "gradients are averaged over the processes")
        for loss in script.values.kinds.losses.values:
            for each in (loss, *self._values_in(loss)):
                self._refuse_loss(shape, each)

    def _values_in(self, loss: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        for name in self.script.tree.within(loss, cst.Name):
            for binding in self.script.scopes.reaching(name):
                if binding.how in (How.ASSIGN, How.UNPACKED) and binding.value is not None:
                    yield binding.value

    def _refuse_loss(self, shape: Shape, value: cst.BaseExpression) -> None:
        if not isinstance(value, cst.Call):
            return
        if method_of(value) == "sum":
            raise ObstacleError(value, "gradients are averaged over the processes, this sums")
        inner = receiver_of(value) or value.func
        if shape.is_wrapped(self.script, inner.func if isinstance(inner, cst.Call) else inner):
            why = "the network returns the loss: DataParallel gives one per GPU"
            raise ObstacleError(value, why)

    def _refuse_batch_size(self, shape: Shape) -> None:
        """Refuse a second use of the batch size that means the batch size of one process."""
        script, size = self.script, shape.given.batch_size
        regions = script.functions.reached(shape.batches.node.body)
        for use in script.tree.all(type(size)) if not isinstance(size, cst.Integer) else ():
            if script.code(use) != script.code(size) or use is size:
                continue
            if any(script.tree.inside(use, region) for region in regions):
                raise ObstacleError(use, "the batch size is read in the training loop")
            call = script.tree.parent(script.tree.parent(use))
            if isinstance(call, cst.Call) and script.kind(call) is Kind.MODULE:
                raise ObstacleError(use, "the network is built for this batch size")
